"""The queue of keys that need work.

Model: a key is *idle*, *waiting* until some moment, *ready*, or *busy* (one worker has it). Adding a key that waits
moves it forward, never back; adding a ready key does nothing; adding a busy key is remembered and takes effect when
it is done. So any number of events about one job costs one reconcile, and no job is ever worked on twice at a time.

Invariants: a key is in exactly one of those states; the queue never holds more than `limit` keys; a closed queue hands
out nothing. `Agenda` holds all decisions and takes the time as an argument; `WorkQueue` adds the waiting.
"""

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from elasticjob.operator.ports import Clock

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):  # noqa: N818 - says what happened, not that something failed
    """The queue was closed: the worker should end."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses after repeated failures: uniformly random up to `base` × 2^(failures-1), at most `limit` seconds.

    Full jitter keeps many failing keys from coming back in step. The lower tenth of the range is not used, so that a
    failure is never retried at once.
    """

    base: float
    limit: float
    uniform: Callable[[float, float], float] = random.uniform

    def pause(self, failures: int) -> float:
        """Seconds to wait after the given number of failures in a row (from 1)."""
        ceiling = min(self.limit, self.base * 2 ** min(failures - 1, 32))
        return self.uniform(ceiling / 10, ceiling)


@dataclass(kw_only=True)
class Agenda(Generic[K]):
    """The state of the queue, without any waiting."""

    limit: int
    _ready: deque[K] = field(default_factory=deque)
    _is_ready: set[K] = field(default_factory=set)
    _due: dict[K, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _busy: set[K] = field(default_factory=set)
    _again: dict[K, float] = field(default_factory=dict)
    _serial: "itertools.count[int]" = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._ready) + len(self._due) + len(self._busy)

    @property
    def ready(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    def add(self, key: K, *, at: float, now: float) -> bool:
        """Ask for work on `key` at the moment `at`; the earliest request wins.

        Returns:
            False if the queue is full and knows nothing of the key.
        """
        if key in self._busy:
            self._again[key] = min(at, self._again.get(key, at))
            return True
        if key in self._is_ready or self._due.get(key, float("inf")) <= at:
            return True
        if key not in self._due and len(self) >= self.limit:
            return False
        if at <= now:
            self._due.pop(key, None)
            self._make_ready(key)
        else:
            self._due[key] = at
            heapq.heappush(self._heap, (at, next(self._serial), key))
        return True

    def take(self, now: float) -> K | None:
        """Hand out the next key that is due; it stays busy until `finish`."""
        self._ripen(now)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._is_ready.discard(key)
        self._busy.add(key)
        return key

    def finish(self, key: K, *, now: float) -> None:
        """Work on the key ended; requests that came meanwhile take effect."""
        self._busy.discard(key)
        at = self._again.pop(key, None)
        if at is not None:
            self.add(key, at=at, now=now)

    def next_due(self) -> float | None:
        """The moment when the next waiting key becomes ready; None if none waits."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        """Forget all keys that no worker has."""
        self._ready.clear()
        self._is_ready.clear()
        self._due.clear()
        self._heap.clear()
        self._again.clear()

    def _ripen(self, now: float) -> None:
        while (at := self.next_due()) is not None and at <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        self._ready.append(key)
        self._is_ready.add(key)


class WorkQueue(Generic[K]):
    """Hands keys to workers. Belongs to one event loop: call every method on that loop's thread."""

    def __init__(self, *, clock: Clock, backoff: Backoff, limit: int = 100_000) -> None:
        self._clock = clock
        self._backoff = backoff
        self._agenda: Agenda[K] = Agenda(limit=limit)
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._agenda)

    @property
    def ready(self) -> int:
        """How many keys wait for a worker."""
        return self._agenda.ready

    def add(self, key: K, *, delay: float = 0.0) -> bool:
        """Ask for work on `key` in `delay` seconds; the earliest request wins. False if the queue is full."""
        if self._closed:
            return False
        now = self._clock.now()
        accepted = self._agenda.add(key, at=now + max(0.0, delay), now=now)
        self._changed.set()
        return accepted

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Ask for work on `key` after a failure.

        Args:
            at_least: Seconds that the server asked to wait.

        Returns:
            The pause in seconds; it grows with each failure until `forget`.
        """
        self._failures[key] = self._failures.get(key, 0) + 1
        pause = max(at_least, self._backoff.pause(self._failures[key]))
        self.add(key, delay=pause)
        return pause

    def forget(self, key: K) -> None:
        """The key's work succeeded: its next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key. The caller must call `done` for it.

        Raises:
            QueueClosed: The queue was closed.
        """
        while not self._closed:
            key = self._agenda.take(self._clock.now())
            if key is not None:
                return key
            self._changed.clear()
            await self._wait()
        raise QueueClosed

    def done(self, key: K) -> None:
        """Work on the key ended, well or not."""
        self._agenda.finish(key, now=self._clock.now())
        self._changed.set()

    def clear(self) -> None:
        """Forget all keys that no worker has, and all failures."""
        self._agenda.clear()
        self._failures.clear()

    def close(self) -> None:
        """Let every waiting worker end."""
        self._closed = True
        self.clear()
        self._changed.set()

    async def _wait(self) -> None:
        due = self._agenda.next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock.now())):
                await self._changed.wait()
        except TimeoutError:
            return
