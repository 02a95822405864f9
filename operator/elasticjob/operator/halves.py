"""The parts of the process that run beside each other, each in a thread with an event loop of its own.

A part that fails is started anew after a growing pause, without touching the others: a watch that the API server ends
with an error must not take the rendezvous of all jobs down with it. A part that fails too often in a row is beyond
help from inside; then the whole process ends, and Kubernetes starts a new one.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Clock
from elasticjob.operator.waiting import happens
from elasticjob.operator.work_queue import Backoff

_log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
CLOSE_SECONDS = 0.25
"""Time that the loop turns on at the end, so that TLS connections can say goodbye, as aiohttp advises."""
_MAX_THREAD_NAME = 15
"""Bytes of a thread's name that Linux keeps."""
Main = Callable[[asyncio.Event], Awaitable[None]]
"""What a part does until the given event is set."""
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
"""Makes the event loop of a part."""


class GaveUp(Exception):  # noqa: N818 - says what happened
    """A part failed too often in a row."""


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """When a part is started anew.

    Args:
        pauses: Pauses between a failure and the next start.
        stable_seconds: A run that lasted this long makes all failures before it forgotten.
        most: Failures in a row after which the part is given up.
        grace_seconds: How long a part may take to end when it is told to.
    """

    pauses: Backoff = field(default_factory=lambda: Backoff(base=1.0, limit=15.0))
    stable_seconds: float = 60.0
    most: int = 10
    grace_seconds: float = 5.0


class _Run:
    """One run of a part: a thread and its loop."""

    def __init__(self, name: str, main: Main, clock: Clock, loop_factory: LoopFactory) -> None:
        self.beat = clock.now()
        self.error: BaseException | None = None
        self._clock = clock
        self._main = main
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop_early = threading.Event()
        self._thread = threading.Thread(target=self._target, name=name, daemon=True)

    def start(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._thread.start()

    def stop(self, *, hard: bool = False) -> None:
        """Ask the part to end; `hard` cancels what it does."""
        self._stop_early.set()
        loop, stop, task = self._loop, self._stop, self._task
        if loop is None or stop is None or task is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(task.cancel if hard else stop.set)

    def _target(self) -> None:
        _name_thread(self._thread.name)
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._supervised())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # told to the keeper, who decides
            self.error = error
        finally:
            self._on_end()

    async def _supervised(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.current_task()
        if self._stop_early.is_set():
            return
        ticker = asyncio.create_task(self._tick(), name="beat")
        try:
            await self._main(self._stop)
        finally:
            ticker.cancel()
            await asyncio.sleep(CLOSE_SECONDS)

    async def _tick(self) -> None:
        while True:
            self.beat = self._clock.now()
            await asyncio.sleep(BEAT_SECONDS)


def _name_thread(name: str) -> None:
    """Name the running thread where `top -H` and perf show it (Python 3.14 does so by itself)."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name[:_MAX_THREAD_NAME])


class Keeper:
    """Keeps one part running."""

    def __init__(
        self,
        *,
        name: str,
        main: Main,
        clock: Clock,
        metrics: Metrics,
        policy: RestartPolicy | None = None,
        loop_factory: LoopFactory = asyncio.new_event_loop,
    ) -> None:
        self.name = name
        self._main = main
        self._clock = clock
        self._metrics = metrics
        self._policy = policy or RestartPolicy()
        self._loop_factory = loop_factory
        self._run: _Run | None = None

    def silent_seconds(self) -> float:
        """How long the part's loop has not turned; 0 while the part does not run."""
        run = self._run
        return max(0.0, self._clock.now() - run.beat) if run else 0.0

    async def run(self) -> None:
        """Keep the part running until cancelled; then let it end.

        Raises:
            GaveUp: It failed too often in a row.
        """
        failures = 0
        while True:
            started = self._clock.now()
            error = await self._run_once()
            if self._clock.now() - started >= self._policy.stable_seconds:
                failures = 0
            failures += 1
            if failures >= self._policy.most:
                raise GaveUp(f"{self.name} failed {failures} times in a row: {error}")
            pause = self._policy.pauses.pause(failures)
            self._metrics.half_restarts.labels(self.name).inc()
            _log.error("%s ended; starting it again in %.1f seconds", self.name, pause, exc_info=error)
            await asyncio.sleep(pause)

    async def _run_once(self) -> BaseException | None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def on_end() -> None:
            with contextlib.suppress(RuntimeError):  # the process is ending
                loop.call_soon_threadsafe(ended.set)

        run = self._run = _Run(self.name, self._main, self._clock, self._loop_factory)
        run.start(on_end)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            await self._end(run, ended)
            raise
        finally:
            self._run = None
        return run.error

    async def _end(self, run: _Run, ended: asyncio.Event) -> None:
        for hard in (False, True):
            run.stop(hard=hard)
            if await happens(ended, within=self._policy.grace_seconds):
                return
        _log.error("%s does not end", self.name)
