"""Reads fields of decoded JSON that this program wrote: what cannot be understood counts as absent."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def text(data: Mapping[str, Any], name: str) -> str:
    """A string, empty if absent or something else."""
    value = data.get(name)
    return value if isinstance(value, str) else ""


def optional_number(data: Mapping[str, Any], name: str) -> int | None:
    """A whole number, None if absent or something else."""
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(data: Mapping[str, Any], name: str) -> int:
    """A whole number, 0 if absent or something else."""
    return optional_number(data, name) or 0


def mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object, empty if absent or something else."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def mappings(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in a list, empty if absent or something else."""
    value = data.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The strings in a list, empty if absent or something else."""
    value = data.get(name)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def without_empty(data: Mapping[str, Any], *, keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Leave out what is None, and what is empty or 0 unless it is to be kept."""
    return {name: value for name, value in data.items() if value or (name in keep and value is not None)}


def parsed(data: Mapping[str, Any], name: str, parse: Callable[[str], T], default: T) -> T:
    """A string in a form of our own, the default if it has another one."""
    try:
        return parse(text(data, name))
    except ValueError:
        return default
