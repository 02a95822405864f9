"""Many occurrences, a real API server, few Events."""

import asyncio
import time

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.event_book import BURST
from elasticjob.operator.events_poster import EventsPoster
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import ObjectReference, Occurrence
from tests.integration.operator.operators import Jobs, eventually


def occurrence(job: ObjectReference, reason: str, note: str, *, warning: bool = False) -> Occurrence:
    return Occurrence(regarding=job, reason=reason, action="Test", note=note, warning=warning)


async def reference(jobs: Jobs) -> ObjectReference:
    meta = (await jobs.create())["metadata"]
    return ObjectReference(
        api_version="elasticjob.dev/v1alpha1",
        kind="ElasticJob",
        namespace=jobs.namespace,
        name=meta["name"],
        uid=meta["uid"],
    )


async def test_a_flood_is_bounded_and_hides_no_warning(port: Port, jobs: Jobs) -> None:
    job = await reference(jobs)
    poster = EventsPoster(cluster=port, clock=SystemClock(), instance="operator-1", metrics=Metrics())
    task, began = asyncio.create_task(poster.run()), time.monotonic()
    for number in range(5000):
        poster.emit(occurrence(job, "NodesJoined", f"{number} nodes joined"))
    poster.emit(occurrence(job, "JobFailed", "é" * 2000, warning=True))

    async def failure_is_told() -> bool:
        return any(event["reason"] == "JobFailed" for event in await jobs.events())

    await eventually(failure_is_told, what="the Warning")
    await asyncio.sleep(3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The limit opens by one Event each five seconds.
    assert len(await jobs.events()) <= BURST + 10 + (time.monotonic() - began) / 5


async def test_repeats_are_one_event_with_a_count(port: Port, jobs: Jobs) -> None:
    job = await reference(jobs)
    poster = EventsPoster(cluster=port, clock=SystemClock(), instance="operator-1", metrics=Metrics())
    task = asyncio.create_task(poster.run())
    for _ in range(2):
        poster.emit(occurrence(job, "NodeLost", "digits-0-0 is lost", warning=True))

    async def counted() -> bool:
        events = await jobs.events()
        return len(events) == 1 and (events[0].get("series") or {}).get("count") == 2

    await eventually(counted, what="one Event of a series of two")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
