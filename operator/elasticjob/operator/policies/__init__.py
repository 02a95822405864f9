"""The rules, one a module, each a pure function over plain data."""
