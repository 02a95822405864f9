"""Turns whatever an event holds into one line of strict JSON.

An event is written at an observability boundary: the code that records it must neither fail nor drown because of a
value that somebody put into it. So nothing here raises, and the output

- is JSON as other languages read it: no bare `NaN` or `Infinity`;
- is text that UTF-8 can carry, even if the input held lone surrogates;
- is bounded: long texts are cut in the middle, large collections at the end, both with a mark that says so.

Values that JSON has no form for (bytes, sets, dates, exceptions, scalars of numeric libraries) become their text form.
Values that JSON can carry come back from `json.loads` as they were.
"""

import json
import math
from collections.abc import Mapping

MAX_TEXT_CHARACTERS = 65_536
"""Longest text within an event; error traces of real programs stay below."""

MAX_EVENT_CHARACTERS = 262_144
"""All the text of an event together."""

MIN_TEXT_CHARACTERS = 256
"""A text of this length is always written whole, so that no long field can displace a short one."""

MAX_DEPTH = 16
"""Deepest nesting of collections that is written as such; what lies deeper becomes text."""

MAX_INTEGER_BITS = 4_096

_ITEM_COST = 16


def to_json(fields: Mapping[str, object]) -> str:
    """Encode the fields of an event. Never raises."""
    cleaner = _Cleaner()
    return json.dumps({name: cleaner.value(value, 0) for name, value in fields.items()}, allow_nan=False)


class _Cleaner:
    """Copies one event into plain JSON values and keeps account of its size."""

    def __init__(self) -> None:
        self._left = MAX_EVENT_CHARACTERS

    def value(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            number = float.__float__(value)
            return number if math.isfinite(number) else str(number)
        if depth < MAX_DEPTH:
            if isinstance(value, dict):
                return self._mapping(value, depth + 1)
            if isinstance(value, (list, tuple)):
                return self._sequence(value, depth + 1)
        return self._text(_text_form(value))

    def _mapping(self, values: dict[object, object], depth: int) -> dict[str, object]:
        clean: dict[str, object] = {}
        for key, value in values.items():
            if self._is_spent():
                clean["…"] = _mark(len(values) - len(clean), "items")
                break
            clean[self._key(key)] = self.value(value, depth)
        return clean

    def _sequence(self, values: list[object] | tuple[object, ...], depth: int) -> list[object]:
        clean: list[object] = []
        for value in values:
            if self._is_spent():
                clean.append(_mark(len(values) - len(clean), "items"))
                break
            clean.append(self.value(value, depth))
        return clean

    def _is_spent(self) -> bool:
        self._left -= _ITEM_COST
        return self._left <= 0

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return self._text(str.__str__(key))
        if key is None or isinstance(key, (bool, int, float)):
            return self._text(_json_key(key))
        return self._text(_text_form(key))

    def _integer(self, number: int) -> int | str:
        # Python refuses to write numbers of many thousand digits in decimal.
        return number if number.bit_length() <= MAX_INTEGER_BITS else self._text(hex(number))

    def _text(self, text: str) -> str:
        limit = max(MIN_TEXT_CHARACTERS, min(MAX_TEXT_CHARACTERS, self._left))
        if len(text) > limit:
            text = _cut(text, limit)
        self._left -= len(text)
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode(errors="backslashreplace").decode()
        return text


def _json_key(key: bool | float | None) -> str:
    """The name that `json.dumps` gives to a key that is no text."""
    names = {None: "null", True: "true", False: "false"}
    return names[key] if key is None or isinstance(key, bool) else str(key)


def _text_form(value: object) -> str:
    try:
        return str(value)
    except Exception:  # an object may do anything in its own __str__
        return f"<{type(value).__name__} without a text form>"


def _cut(text: str, limit: int) -> str:
    """Keep both ends: a trace says at its end what went wrong and at its beginning where."""
    head, tail = limit - limit // 2, limit // 2
    return text[:head] + _mark(len(text) - limit, "characters") + text[-tail:]


def _mark(count: int, what: str) -> str:
    return f"…[{count} {what} cut]…"
