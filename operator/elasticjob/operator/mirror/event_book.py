"""Which Kubernetes Events to write, decided without I/O.

Model: occurrences that differ in nothing but time form a *series*. Its first occurrence creates an Event, the second
one marks it as a series, later ones are counted in memory and written in growing intervals; a series that was silent
for six minutes is over. Only creations can be many, so they are limited: a token bucket for each job and type.
Warnings have a bucket of their own, and the first Warning of a reason always passes, so that no number of Normal
events can hide it.

The API's limits are kept: a note has at most 1,024 *bytes*.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elasticjob.operator.clock import micro_timestamp
from elasticjob.operator.ports import Body, ObjectReference, Occurrence

CONTROLLER = "elasticjob.dev/operator"
NOTE_LIMIT = 1024
"""Bytes that the API server accepts in a note."""
BURST = 25
"""Events of one type that a job may create at once, as in client-go."""
REFILL_PER_SECOND = 0.2
SERIES_SILENCE = 360.0
"""Seconds after which a series that does not go on is over, as in client-go."""
FIRST_REFRESH = 10.0
"""Seconds between the second and the next write of a series; doubled with each write."""
LAST_REFRESH = 1800.0
_MEMORY = 4096
"""Series and buckets to remember."""


@dataclass(kw_only=True)
class TokenBucket:
    """Allows `burst` at once and `rate` a second in the long run."""

    burst: float
    rate: float
    tokens: float
    at: float

    def take(self, now: float) -> bool:
        """Take one token if there is one."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(kw_only=True)
class _Series:
    """A run of equal occurrences."""

    namespace: str
    name: str
    count: int
    written: int
    last: float
    last_wall: datetime
    refresh: float
    next_write: float


@dataclass(frozen=True, kw_only=True)
class EventWrite:
    """One call to make: create `body`, or apply it as a patch to the Event `name`."""

    namespace: str
    name: str
    create: bool
    body: Body
    occurrence: Occurrence


class EventBook:
    """Remembers what was written lately. Takes the time as an argument."""

    def __init__(self, *, instance: str) -> None:
        self._instance = instance
        self._series: OrderedDict[tuple[Any, ...], _Series] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, bool], TokenBucket] = OrderedDict()
        self._warned: OrderedDict[tuple[str, str], float] = OrderedDict()

    def enter(self, occurrence: Occurrence, *, now: float, wall: datetime) -> EventWrite | bool:
        """Note an occurrence.

        Returns:
            What to write; True if it was only counted; False if the limit was reached and it is to be dropped.
        """
        key = _key(occurrence)
        series = self._series.get(key)
        if series and now - series.last <= SERIES_SILENCE:
            series.count += 1
            series.last, series.last_wall = now, wall
            self._series.move_to_end(key)
            return self._refresh(series, occurrence, now) or True
        if not self._may_create(occurrence, now):
            return False
        return self._create(key, occurrence, now=now, wall=wall)

    def forget(self, occurrence: Occurrence) -> None:
        """The Event of this occurrence is not there (any more): the next one creates it anew."""
        self._series.pop(_key(occurrence), None)

    def _refresh(self, series: _Series, occurrence: Occurrence, now: float) -> EventWrite | None:
        if now < series.next_write:
            return None
        series.written = series.count
        series.next_write = now + series.refresh
        series.refresh = min(LAST_REFRESH, series.refresh * 2)
        state = {"count": series.count, "lastObservedTime": micro_timestamp(series.last_wall)}
        return EventWrite(
            namespace=series.namespace,
            name=series.name,
            create=False,
            body={"series": state},
            occurrence=occurrence,
        )

    def _may_create(self, occurrence: Occurrence, now: float) -> bool:
        uid = occurrence.regarding.uid
        bucket = self._buckets.setdefault(
            (uid, occurrence.warning), TokenBucket(burst=BURST, rate=REFILL_PER_SECOND, tokens=BURST, at=now)
        )
        self._buckets.move_to_end((uid, occurrence.warning))
        _shrink(self._buckets)
        allowed = bucket.take(now)
        if not occurrence.warning:
            return allowed
        reason = (uid, occurrence.reason)
        is_new = now - self._warned.get(reason, float("-inf")) > SERIES_SILENCE
        if allowed or is_new:
            self._warned[reason] = now
            self._warned.move_to_end(reason)
            _shrink(self._warned)
        return allowed or is_new

    def _create(self, key: tuple[Any, ...], occurrence: Occurrence, *, now: float, wall: datetime) -> EventWrite:
        body = event_body(occurrence, wall=wall, instance=self._instance)
        meta = body["metadata"]
        self._series[key] = _Series(
            namespace=meta["namespace"],
            name=meta["name"],
            count=1,
            written=1,
            last=now,
            last_wall=wall,
            refresh=FIRST_REFRESH,
            next_write=now,
        )
        _shrink(self._series)
        return EventWrite(namespace=meta["namespace"], name=meta["name"], create=True, body=body, occurrence=occurrence)


def event_body(occurrence: Occurrence, *, wall: datetime, instance: str) -> Body:
    """The Event object of events.k8s.io/v1."""
    regarding = occurrence.regarding
    body: Body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            # As client-go names them: the object and a moment, which is unique enough for one reporting process.
            "name": f"{regarding.name}.{int(wall.timestamp() * 1_000_000):x}{abs(hash(_key(occurrence))) % 4096:03x}",
            "namespace": regarding.namespace,
        },
        "eventTime": micro_timestamp(wall),
        "type": "Warning" if occurrence.warning else "Normal",
        "reason": occurrence.reason,
        "action": occurrence.action,
        "note": cut(occurrence.note, NOTE_LIMIT),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "regarding": _reference(regarding),
    }
    if occurrence.related:
        body["related"] = _reference(occurrence.related)
    return body


def cut(text: str, limit: int) -> str:
    """The longest beginning of a text that has at most `limit` bytes in UTF-8, with an ellipsis if it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode("utf-8")
    ellipsis = "…"
    return encoded[: limit - len(ellipsis.encode())].decode("utf-8", "ignore") + ellipsis


def _reference(reference: ObjectReference) -> Body:
    named = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {field: value for field, value in named.items() if value}


def _key(occurrence: Occurrence) -> tuple[Any, ...]:
    related = occurrence.related.uid if occurrence.related else ""
    return (
        occurrence.warning,
        occurrence.action,
        occurrence.reason,
        occurrence.regarding.uid,
        related,
        occurrence.note,
    )


def _shrink(memory: OrderedDict[Any, Any]) -> None:
    while len(memory) > _MEMORY:
        memory.popitem(last=False)
