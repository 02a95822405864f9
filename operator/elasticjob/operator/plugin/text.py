"""Words and figures as the plugin shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise

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


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style) -> list[str]:
    """Columns as wide as they must be. The last one takes what is left of the width."""
    texts = [tuple(head), *(tuple(cell.text for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head) - 1)]
    room = None if style.width is None else max(10, style.width - sum(widths) - 2 * len(widths))
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
