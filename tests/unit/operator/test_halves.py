import asyncio
from pathlib import Path

import pytest
import uvloop

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.halves import GaveUp, Keeper, Main, RestartPolicy
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.work_queue import Backoff

QUICK = RestartPolicy(pauses=Backoff(base=0.001, limit=0.001), most=3, grace_seconds=1.0)


def thread_name() -> str:
    return Path("/proc/thread-self/comm").read_text().strip()


def keeper(main: Main, policy: RestartPolicy = QUICK) -> Keeper:
    return Keeper(name="part", main=main, clock=SystemClock(), metrics=Metrics(), policy=policy)


async def test_a_part_runs_on_a_loop_of_its_own() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    seen = asyncio.Event()
    here = asyncio.get_running_loop()

    async def main(stop: asyncio.Event) -> None:
        loops.append(asyncio.get_running_loop())
        here.call_soon_threadsafe(seen.set)
        await stop.wait()

    task = asyncio.create_task(keeper(main).run())
    await seen.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert loops[0] is not here
    assert loops[0].is_closed()


async def test_the_thread_of_a_part_bears_its_name_for_the_system_too() -> None:
    names: list[str] = []

    async def main(stop: asyncio.Event) -> None:
        names.append(thread_name())
        raise RuntimeError("enough")

    with pytest.raises(GaveUp):
        await keeper(main).run()
    assert set(names) == {"part"}


async def test_a_part_runs_on_the_loop_that_is_made_for_it() -> None:
    made: list[asyncio.AbstractEventLoop] = []
    used: list[asyncio.AbstractEventLoop] = []

    def make() -> asyncio.AbstractEventLoop:
        made.append(uvloop.new_event_loop())
        return made[-1]

    async def main(stop: asyncio.Event) -> None:
        used.append(asyncio.get_running_loop())
        raise RuntimeError("enough")

    part = Keeper(name="part", main=main, clock=SystemClock(), metrics=Metrics(), policy=QUICK, loop_factory=make)
    with pytest.raises(GaveUp):
        await part.run()
    assert used == made
    assert all(loop.is_closed() for loop in made)


async def test_a_part_that_fails_is_started_again() -> None:
    starts: list[int] = []
    third = asyncio.Event()
    here = asyncio.get_running_loop()

    async def main(stop: asyncio.Event) -> None:
        starts.append(1)
        if len(starts) < 3:
            raise RuntimeError("broken")
        here.call_soon_threadsafe(third.set)
        await stop.wait()

    task = asyncio.create_task(keeper(main, RestartPolicy(pauses=QUICK.pauses, most=5)).run())
    await third.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(starts) == 3


async def test_a_part_that_always_fails_is_given_up() -> None:
    async def main(stop: asyncio.Event) -> None:
        raise RuntimeError("broken")

    with pytest.raises(GaveUp, match="part failed 3 times in a row: broken"):
        await keeper(main).run()


async def test_a_part_that_just_ends_has_failed() -> None:
    async def main(stop: asyncio.Event) -> None:
        return

    with pytest.raises(GaveUp):
        await keeper(main).run()


async def test_a_part_that_does_not_heed_the_call_to_stop_is_cancelled() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()
    here = asyncio.get_running_loop()

    async def main(stop: asyncio.Event) -> None:
        here.call_soon_threadsafe(started.set)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            here.call_soon_threadsafe(cancelled.set)
            raise

    policy = RestartPolicy(pauses=QUICK.pauses, most=3, grace_seconds=0.05)
    task = asyncio.create_task(keeper(main, policy).run())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await cancelled.wait()


async def test_a_loop_that_turns_is_not_silent() -> None:
    started = asyncio.Event()
    here = asyncio.get_running_loop()

    async def main(stop: asyncio.Event) -> None:
        here.call_soon_threadsafe(started.set)
        await stop.wait()

    part = keeper(main)
    assert part.silent_seconds() == 0
    task = asyncio.create_task(part.run())
    await started.wait()
    assert part.silent_seconds() < 30
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert part.silent_seconds() == 0
