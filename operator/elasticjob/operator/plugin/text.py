"""Words and figures as the plugin shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

_LEAST_ROOM = 28
"""So many columns the last column of a table should have; others are left out for it."""
_CUT_ROOM = 10
"""So many it has in any case."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_EXACT_UNTIL = 10
"""As kubectl: 9m59s, but 10m."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """What the terminal can show.

    Args:
        colour: Whether it shows colours.
        unicode: Whether it shows characters beyond ASCII.
        width: Columns to keep to; None for no limit.
        height: Lines to keep to; None for no limit.
    """

    colour: bool = False
    unicode: bool = True
    width: int | None = None
    height: int | None = None

    def paint(self, text: str, code: str) -> str:
        """The text in a colour, `31` for red."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text

    @property
    def ellipsis(self) -> str:
        """Stands for what was cut off."""
        return "…" if self.unicode else "..."


RED, GREEN, YELLOW, BLUE, BOLD, DIM = "31", "32", "33", "34", "1", "2"


@dataclass(frozen=True)
class Cell:
    """A part of a table with the colour it is shown in."""

    text: str
    code: str = ""


def plain(text: object) -> str:
    """A text in one line and without control characters, which could play tricks on a terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in str(text)).split())


def moment(stamp: str) -> datetime | None:
    """The moment of a time stamp of the API; None if it is absent or none."""
    try:
        parsed = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.astimezone(timezone.utc) if parsed.tzinfo else None


def familiar(text: object, now: datetime) -> str:
    """A text for people: in one line, and without the date in stamps of today."""
    return plain(text).replace(f"{now.date().isoformat()}T", "")


def duration(seconds: float) -> str:
    """At most two units, the second one only where the first is small: `9m5s`, `12m`, `3h20m`."""
    left = max(0, int(seconds))
    for (size, unit), (smaller, small_unit) in pairwise(_UNITS):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}" + (f"{rest}{small_unit}" if rest and left // size < _EXACT_UNTIL else "")
    return f"{left}s"


def clock(at: datetime, now: datetime) -> str:
    """The time of day, with the date if that is another one."""
    return at.strftime("%H:%M:%SZ" if at.date() == now.date() else "%Y-%m-%d %H:%M:%SZ")


def flow(cells: Sequence[Cell], style: Style) -> list[str]:
    """Cells one after the other, in as many lines as the width makes necessary."""
    lines: list[list[Cell]] = [[]]
    used = 0
    for cell in cells:
        if lines[-1] and style.width is not None and used + len(cell.text) > style.width:
            lines.append([])
            used = 0
        lines[-1].append(cell)
        used += len(cell.text) + 2
    return ["  ".join(style.paint(cut(cell.text, style.width, style), cell.code) for cell in line) for line in lines]


def table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style, *, optional: Sequence[str] = ()
) -> list[str]:
    """Columns as wide as they must be. The last one takes what is left of the width.

    Args:
        optional: Columns that are left out, in this order, as long as too little is left.
    """
    for name in optional:
        if _has_room(head, rows, style):
            break
        place = head.index(name)
        head, rows = _without(head, place), [_without(row, place) for row in rows]
    return _table(head, rows, style)


def _has_room(head: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style) -> bool:
    wanted = max((len(row[-1].text) for row in rows), default=0)
    room = _room(_widths(head, rows), style)
    return room is None or room >= min(wanted, _LEAST_ROOM)


def _without(row: Sequence[T], place: int) -> list[T]:
    return [*row[:place], *row[place + 1 :]]


def _widths(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Of all columns but the last."""
    texts = [tuple(head), *(tuple(cell.text for cell in row) for row in rows)]
    return [max(len(row[column]) for row in texts) for column in range(len(head) - 1)]


def _room(widths: Sequence[int], style: Style) -> int | None:
    """Columns that are left for the last one; None for no limit."""
    return None if style.width is None else style.width - sum(widths) - 2 * len(widths)


def _table(head: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style) -> list[str]:
    widths = _widths(head, rows)
    room = _room(widths, style)
    room = None if room is None else max(_CUT_ROOM, room)
    lines = [style.paint(_line(head, widths, room, style), DIM)]
    for row in rows:
        shown = [style.paint(cell.text.ljust(width), cell.code) for cell, width in zip(row, widths, strict=False)]
        shown.append(style.paint(cut(row[-1].text, room, style), row[-1].code))
        lines.append("  ".join(shown).rstrip())
    return lines


def _line(texts: Sequence[str], widths: Sequence[int], room: int | None, style: Style) -> str:
    padded = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
    return "  ".join([*padded, cut(texts[-1], room, style)]).rstrip()


def cut(text: str, room: int | None, style: Style) -> str:
    """The text, or as much of it as there is room for."""
    if room is None or len(text) <= room:
        return text
    return text[: max(0, room - len(style.ellipsis))] + style.ellipsis
