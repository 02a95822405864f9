"""Which process leads, and that only that one acts."""
