"""Few timers for many things: one alarm for the deadlines of all runs, and one for all polls that end together."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

GRID = 0.1
"""Polls end at multiples of so many seconds."""


class Batches:
    """Calls functions after their time, rounded up to a grid; those of one moment are called in one go.

    A thousand held calls that end one by one wake the process up, and by their next calls again, hundreds of times a
    second; in batches they come and go in a few. What is not needed any more is not taken out, so a function that is
    called has to look whether there is still something to do.
    """

    def __init__(self) -> None:
        self._due: dict[int, list[Callable[[], None]]] = {}

    def add(self, seconds: float, function: Callable[[], None]) -> None:
        """Call the function on the running loop, at most `GRID` later than told."""
        loop = asyncio.get_running_loop()
        slot = math.ceil((loop.time() + seconds) / GRID)
        batch = self._due.get(slot)
        if batch is None:
            batch = self._due[slot] = []
            loop.call_at(slot * GRID, self._ring, slot)
        batch.append(function)

    def stop(self) -> None:
        """Call nothing any more."""
        self._due.clear()

    def _ring(self, slot: int) -> None:
        for function in self._due.pop(slot, ()):
            function()


class Timers:
    """Wakes up the runs whose time has come.

    A deadline that moves to a later time leaves its earlier entry in the heap: the run is then woken up too early,
    which is harmless, and sets its deadline anew.

    Args:
        wake: Called with the key of what is due; sets the next deadline itself.
        clock: Monotonic seconds.
    """

    def __init__(self, wake: Callable[[str], None], *, clock: Callable[[], float]) -> None:
        self._wake = wake
        self._clock = clock
        self._heap: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._set_alarm()

    def stop(self) -> None:
        """Wake up nobody any more."""
        self._loop = None
        if self._alarm is not None:
            self._alarm.cancel()

    def set(self, key: str, deadline: float | None) -> None:
        """Wake up the key at the deadline, or before."""
        if deadline is None or self._due.get(key, float("inf")) <= deadline:
            return
        self._due[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), key))
        if self._heap[0][2] == key:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap and self._loop is not None:
            self._alarm = self._loop.call_later(max(0.0, self._heap[0][0] - self._clock()), self._ring)

    def _ring(self) -> None:
        now = self._clock()
        try:
            while self._heap and self._heap[0][0] <= now:
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due:
                    del self._due[key]
                    self._wake(key)
        finally:
            self._set_alarm()
