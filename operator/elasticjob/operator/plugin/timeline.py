"""The rounds of a job as a bar along time.

A bar is as high as the round has nodes, and as wide as the share of time for which it trained; between rounds are the
times in which nobody trained. Each round has at least one column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from elasticjob.operator.model.fields import number, text
from elasticjob.operator.plugin.text import BLUE, DIM, GREEN, RED, Cell, Style, clock, duration, moment, plain, table
from elasticjob.rendezvous.wording import counted

_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = ".:-=+*%#"
_GAP, _ASCII_GAP = "·", " "
_LISTED = 8
_WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of the time: a round that trained, or (`round` 0) a gap between two."""

    round: int
    nodes: int
    start: datetime
    end: datetime
    entry: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return max(0.0, (self.end - self.start).total_seconds())


def spans(history: Sequence[Mapping[str, Any]], *, end: datetime) -> list[Span]:
    """Rounds and gaps in the order of time; the newest round lasts until `end`."""
    dated = [(entry, at) for entry in history if (at := moment(text(entry, "time"))) is not None]
    result: list[Span] = []
    for place, (entry, start) in enumerate(dated):
        follower = dated[place + 1] if place + 1 < len(dated) else None
        until = max(start, _trained_until(follower) if follower else end)
        result.append(
            Span(round=number(entry, "round"), nodes=number(entry, "to"), start=start, end=until, entry=entry)
        )
        if follower and follower[1] > until:
            result.append(Span(round=0, nodes=0, start=until, end=follower[1], entry={}))
    return result


def _trained_until(follower: tuple[Mapping[str, Any], datetime]) -> datetime:
    entry, formed = follower
    seconds = entry.get("seconds")
    return formed - timedelta(seconds=seconds) if isinstance(seconds, int | float) else formed


def timeline(history: Sequence[Mapping[str, Any]], *, end: datetime, now: datetime, style: Style) -> list[str]:
    """The bar with its scale, then the newest rounds with their causes. Empty before the first round."""
    drawn = spans(history, end=end)
    if not drawn:
        return []
    if end < now:
        last = drawn[-1]
        ended = Span(round=0, nodes=0, start=last.end, end=max(now, last.end), entry={})
        drawn = [*drawn, ended] if ended.seconds else drawn
    return [*_bar(drawn, now, style), "", *_list(drawn, now, style)]


def _bar(drawn: Sequence[Span], now: datetime, style: Style) -> list[str]:
    width = min(style.width or _WIDTH, _WIDTH)
    most = max(span.nodes for span in drawn) or 1
    levels, gap = (_LEVELS, _GAP) if style.unicode else (_ASCII_LEVELS, _ASCII_GAP)
    bars, labels = "", ""
    for span, columns in zip(drawn, _columns(drawn, width), strict=True):
        if span.round:
            level = levels[max(1, -(-span.nodes * len(levels) // most)) - 1]
            bars += style.paint(level * columns, GREEN if span is drawn[-1] else BLUE)
            labels += str(span.round).ljust(columns)[:columns] if len(str(span.round)) <= columns else " " * columns
        else:
            bars += style.paint(gap * columns, DIM)
            labels += " " * columns
    first, last = clock(drawn[0].start, now), clock(drawn[-1].end, now)
    scale = first + last.rjust(max(len(last) + 1, width - len(first)))
    return [bars.rstrip(), labels.rstrip(), style.paint(scale, DIM)]


def _columns(drawn: Sequence[Span], width: int) -> list[int]:
    """Widths that add up to `width`: one for each round, the rest by the share of time (largest remainders)."""
    least = [1 if span.round else 0 for span in drawn]
    rest = max(0, width - sum(least))
    total = sum(span.seconds for span in drawn) or 1.0
    shares = [span.seconds / total * rest for span in drawn]
    columns = [one + int(share) for one, share in zip(least, shares, strict=True)]
    by_remainder = sorted(range(len(drawn)), key=lambda place: int(shares[place]) - shares[place])
    for place in by_remainder[: max(0, width - sum(columns))]:
        columns[place] += 1
    return columns


def _list(drawn: Sequence[Span], now: datetime, style: Style) -> list[str]:
    rounds = [span for span in drawn if span.round]
    rows = [_row(span, now, style) for span in rounds[-_LISTED:]]
    lines = table(
        ("ROUND", "FORMED", "TRAINED", "NODES", "FORMED IN", "CAUSE"), rows, style, optional=("FORMED IN", "FORMED")
    )
    earlier = len(rounds) - _LISTED
    return [*lines, f"({counted(earlier, 'earlier round')})"] if earlier > 0 else lines


def _row(span: Span, now: datetime, style: Style) -> list[Cell]:
    entry, arrow = span.entry, "→" if style.unicode else "->"
    seconds = entry.get("seconds")
    unplanned = entry.get("planned") is False
    cause = plain(text(entry, "cause")) or plain(text(entry, "node"))
    return [
        Cell(str(span.round)),
        Cell(clock(span.start, now)),
        Cell(duration(span.seconds)),
        Cell(f"{number(entry, 'from')}{arrow}{span.nodes}"),
        Cell(f"{seconds:.1f}s" if isinstance(seconds, int | float) else ""),
        Cell(f"! {cause}" if unplanned else cause, RED if unplanned else ""),
    ]
