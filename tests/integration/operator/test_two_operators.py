"""Operators that are killed, paused and followed by others (processes of their own, ended for real)."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from elasticjob.operator.constants import LABEL_NODE_INDEX
from elasticjob.operator.resources import JOBS
from tests.integration.operator.operators import LEASE_SECONDS, Jobs, OperatorProcess, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

Start = Callable[..., OperatorProcess]


async def leads(jobs: Jobs, name: str) -> bool:
    return (await jobs.holder()).startswith(f"{name}_")


async def indexes(jobs: Jobs) -> list[int]:
    return sorted(int(pod["metadata"]["labels"][LABEL_NODE_INDEX]) for pod in await jobs.children())


async def test_an_operator_killed_in_the_middle_of_creation_is_continued(jobs: Jobs, processes: Start) -> None:
    first = processes("first", pod_parallelism="1")
    await eventually(lambda: leads(jobs, "first"), what="the first leads")
    await jobs.create(replicas=40)

    async def some() -> bool:
        return len(await jobs.children()) >= 3

    await eventually(some, what="three pods")
    first.kill()
    before = {pod["metadata"]["uid"] for pod in await jobs.children()}
    assert len(before) < 40

    processes("second")

    async def all_there() -> bool:
        return len(await jobs.children()) == 40

    await eventually(all_there, what="all pods")
    assert await indexes(jobs) == list(range(40))
    assert before <= {pod["metadata"]["uid"] for pod in await jobs.children()}


async def test_what_happened_while_no_operator_ran_is_caught_up_with(jobs: Jobs, processes: Start) -> None:
    first = processes("first")
    await eventually(lambda: leads(jobs, "first"), what="the first leads")
    await jobs.create("scaled", replicas=2)
    deleted = await jobs.create("deleted", replicas=2)

    async def four() -> bool:
        return len(await jobs.children()) == 4

    await eventually(four, what="four pods")
    first.kill()
    await jobs.delete(deleted)
    await jobs.port.patch(JOBS, {"spec": {"replicas": 3}}, namespace=jobs.namespace, name="scaled")
    kept = {name for name in await jobs.pod_names() if name.startswith("scaled-")}
    processes("second")

    async def settled() -> bool:
        return await jobs.pod_names() == ["scaled-0-0", "scaled-1-0", "scaled-2-0"]

    await eventually(settled, what="three pods of the scaled job alone")
    assert kept <= set(await jobs.pod_names())


async def test_a_standby_takes_over_from_a_killed_leader_with_the_next_epoch(jobs: Jobs, processes: Start) -> None:
    first = processes("first")
    await eventually(lambda: leads(jobs, "first"), what="the first leads")
    processes("second")
    await asyncio.sleep(2)
    assert await leads(jobs, "first")
    epoch = await jobs.epoch()
    first.kill()
    await eventually(lambda: leads(jobs, "second"), what="the second leads")
    assert await jobs.epoch() == epoch + 1
    await jobs.create(replicas=2)

    async def two() -> bool:
        return len(await jobs.children()) == 2

    await eventually(two, what="two pods")


async def test_a_paused_leader_does_nothing_when_it_wakes_up(jobs: Jobs, processes: Start) -> None:
    first = processes("first", pod_parallelism="1")
    await eventually(lambda: leads(jobs, "first"), what="the first leads")
    await jobs.create(replicas=60)

    async def some() -> bool:
        return len(await jobs.children()) >= 3

    await eventually(some, what="three pods")
    first.signal(signal.SIGSTOP)
    processes("second")
    await eventually(lambda: leads(jobs, "second"), what="the second leads")

    async def all_there() -> bool:
        return len(await jobs.children()) == 60

    await eventually(all_there, what="all pods")
    first.signal(signal.SIGCONT)
    await asyncio.sleep(2 * LEASE_SECONDS)
    assert await leads(jobs, "second")
    assert await indexes(jobs) == list(range(60))
    first.signal(signal.SIGTERM)
    assert first.wait(30) == 0
    assert "no longer leading" in first.log.read_text()


async def test_an_operator_that_is_told_to_stop_releases_the_lease(jobs: Jobs, processes: Start) -> None:
    first = processes("first")
    await eventually(lambda: leads(jobs, "first"), what="the first leads")
    first.signal(signal.SIGTERM)
    assert first.wait(30) == 0
    assert await jobs.holder() == ""
