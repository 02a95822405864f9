"""Reads typed values from decoded JSON and says which field is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob.operator.model.errors import ModelError


@dataclass(frozen=True)
class Reader:
    """One JSON object and the path that leads to it. An absent field and `null` are the same."""

    data: Mapping[str, Any]
    path: str

    def integer(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        """A whole number within limits."""
        value = self.optional_integer(name, least=least, most=most)
        return default if value is None else value

    def optional_integer(self, name: str, *, least: int = 0, most: int = 2**31 - 1) -> int | None:
        """A whole number within limits, or None if absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(name, f"must be a whole number from {least} to {most}, not {value!r}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {value!r}")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, not {value!r}")
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """One of a few words."""
        value = self.text(name, default)
        if value not in choices:
            raise self.error(name, f"must be one of {', '.join(choices)}, not {value!r}")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A JSON object; empty if absent."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(name, f"must be an object, not {value!r}")
        return value

    def items(self, name: str) -> Sequence[Any]:
        """A list; empty if absent."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.error(name, f"must be a list, not {value!r}")
        return value

    def within(self, name: str) -> "Reader":
        """A reader of the object in this field."""
        return Reader(self.mapping(name), f"{self.path}.{name}" if self.path else name)

    def item(self, name: str, number: int) -> "Reader":
        """A reader of an object in the list in this field."""
        value, path = self.items(name)[number], f"{self.path}.{name}[{number}]"
        if not isinstance(value, Mapping):
            raise ModelError(path, f"must be an object, not {value!r}")
        return Reader(value, path)

    def error(self, name: str, message: str) -> ModelError:
        """An error that names the field by its whole path."""
        return ModelError(f"{self.path}.{name}" if self.path else name, message)
