"""Writes Kubernetes Events, so that no trouble with them ever reaches the real work.

`emit` puts an occurrence into a bounded queue and returns at once, on whatever thread; one task writes. Warnings are
written first. When the queue is full, the oldest Normal one is dropped, then the oldest Warning; each drop is counted.
A server that asks to slow down is obeyed, one that does not answer is tried a few times, any other refusal drops the
one Event. Only the leader writes. What people are told as Events is in the log too, since the cluster keeps Events for
an hour.
"""

import asyncio
import logging
import threading
from collections import deque

from elasticjob.operator.errors import ClusterError, NotFound, TooManyRequests, Unavailable
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.mirror.event_book import EventBook, EventWrite
from elasticjob.operator.ports import Clock, ClusterPort, Occurrence
from elasticjob.operator.resources import EVENTS

_log = logging.getLogger(__name__)

QUEUE_LIMIT = 1000
MAX_TRIES = 4
WRITE_PAUSE = 0.02
"""Seconds between two writes: at most 50 a second for all jobs together."""
_LOG_INTERVAL = 60.0
_LONGEST_PAUSE = 30.0


class EventsPoster:
    """The implementation of `EventSink`."""

    def __init__(self, *, cluster: ClusterPort, clock: Clock, instance: str, metrics: Metrics) -> None:
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._book = EventBook(instance=instance)
        self._lock = threading.Lock()
        self._warnings: deque[Occurrence] = deque()
        self._normals: deque[Occurrence] = deque()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._logged_at = float("-inf")

    def emit(self, occurrence: Occurrence) -> None:
        """Queue one occurrence."""
        with self._lock:
            (self._warnings if occurrence.warning else self._normals).append(occurrence)
            if len(self._warnings) + len(self._normals) > QUEUE_LIMIT:
                self._drop((self._normals or self._warnings).popleft(), "queue-full")
            wake = self._wake
        if wake is not None:
            loop, event = wake
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return  # the loop has ended; the next one finds the queue

    async def run(self) -> None:
        """Write until cancelled."""
        changed = asyncio.Event()
        with self._lock:
            self._wake = (asyncio.get_running_loop(), changed)
        try:
            while True:
                occurrence = self._next()
                if occurrence is None:
                    await changed.wait()
                    changed.clear()
                else:
                    await self._handle(occurrence)
        finally:
            with self._lock:
                self._wake = None

    def clear(self) -> None:
        """Drop what is queued: somebody else leads now."""
        with self._lock:
            for occurrence in (*self._warnings, *self._normals):
                self._drop(occurrence, "not-leader")
            self._warnings.clear()
            self._normals.clear()

    def _next(self) -> Occurrence | None:
        with self._lock:
            for queue in (self._warnings, self._normals):
                if queue:
                    return queue.popleft()
        return None

    async def _handle(self, occurrence: Occurrence) -> None:
        write = self._book.enter(occurrence, now=self._clock.now(), wall=self._clock.wall())
        if write is False:
            self._drop(occurrence, "rate")
        elif isinstance(write, EventWrite):
            if write.create:
                _log.info("%s", occurrence.note, extra=_log_fields(occurrence))
            await self._write(write)
            await asyncio.sleep(WRITE_PAUSE)

    async def _write(self, write: EventWrite) -> None:
        trouble: ClusterError
        for attempt in range(1, MAX_TRIES + 1):
            try:
                await self._send(write)
            except TooManyRequests as error:
                pause, trouble = error.retry_after, error
            except Unavailable as error:
                pause, trouble = 0.5 * 2**attempt, error
            except ClusterError as error:
                self._give_up(write, error)
                return
            else:
                self._metrics.events_posted.labels(_type(write.occurrence)).inc()
                return
            if attempt < MAX_TRIES:
                await asyncio.sleep(min(pause, _LONGEST_PAUSE))
        self._give_up(write, trouble)

    async def _send(self, write: EventWrite) -> None:
        if write.create:
            await self._cluster.create(EVENTS, write.body, namespace=write.namespace)
        else:
            await self._cluster.patch(EVENTS, write.body, namespace=write.namespace, name=write.name)

    def _give_up(self, write: EventWrite, error: ClusterError) -> None:
        self._book.forget(write.occurrence)
        if isinstance(error, NotFound) and not write.create:
            return  # the Event has expired; the next occurrence begins a new series
        self._drop(write.occurrence, type(error).__name__)
        now = self._clock.now()
        if now - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = now
            _log.warning("an Event was not written: %s", error, extra=_log_fields(write.occurrence))

    def _drop(self, occurrence: Occurrence, cause: str) -> None:
        self._metrics.events_dropped.labels(_type(occurrence), cause).inc()


def _log_fields(occurrence: Occurrence) -> dict[str, object]:
    job = f"{occurrence.regarding.namespace}/{occurrence.regarding.name}"
    fields: dict[str, object] = {"job": job, "reason": occurrence.reason, "type": _type(occurrence)}
    if occurrence.related is None:
        return fields
    pod = occurrence.related.name
    return {**fields, "node": pod.rpartition("-")[0], "pod": pod}


def _type(occurrence: Occurrence) -> str:
    return "Warning" if occurrence.warning else "Normal"
