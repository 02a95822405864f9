"""The Events about one job, oldest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from elasticjob.operator.model.fields import mapping, number, text
from elasticjob.operator.plugin.text import RED, YELLOW, Cell, Style, clock, moment, plain, table

_LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Happening:
    """One Event of core/v1, be it written by that group or by events.k8s.io."""

    first: datetime
    last: datetime
    count: int
    warning: bool
    reason: str
    message: str


def read_event(event: Mapping[str, Any]) -> Happening:
    """The fields that differ between the two groups, brought together."""
    series = mapping(event, "series")
    created = text(mapping(event, "metadata"), "creationTimestamp")
    first = text(event, "eventTime") or text(event, "firstTimestamp") or created
    last = text(series, "lastObservedTime") or text(event, "lastTimestamp") or first
    return Happening(
        first=moment(first) or _LONG_AGO,
        last=moment(last) or _LONG_AGO,
        count=number(series, "count") or number(event, "count") or 1,
        warning=text(event, "type") == "Warning",
        reason=plain(text(event, "reason")),
        message=plain(text(event, "message")),
    )


def event_lines(events: Iterable[Mapping[str, Any]], *, job_uid: str, now: datetime, style: Style) -> list[str]:
    """A table of the Events about this very job, in the order in which they first happened."""
    own = [read_event(one) for one in events if text(mapping(one, "involvedObject"), "uid") == job_uid]
    if not own:
        return ["No Events: the cluster keeps them for an hour by default."]
    rows = [_row(one, now) for one in sorted(own, key=lambda one: (one.first, one.last))]
    return table(("FIRST", "LAST", "COUNT", "REASON", "MESSAGE"), rows, style)


def _row(one: Happening, now: datetime) -> list[Cell]:
    repeated = one.count > 1
    return [
        Cell(clock(one.first, now)),
        Cell(clock(one.last, now) if repeated else ""),
        Cell(f"x{one.count}" if repeated else ""),
        Cell(one.reason, YELLOW if one.warning else ""),
        Cell(one.message, RED if one.warning else ""),
    ]
