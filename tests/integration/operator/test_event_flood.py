"""Many occurrences, a real API server, few Events."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.mirror.event_book import BURST
from elasticjob.operator.mirror.poster import EventsPoster
from elasticjob.operator.ports import ObjectReference, Occurrence
from tests.cluster.cluster import Cluster
from tests.integration.operator.operators import Jobs, eventually

_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


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


@contextmanager
def ending_namespace(api: Cluster) -> Iterator[str]:
    """A namespace that is being deleted and does not go, since an object in it has a finalizer."""
    metadata = {"name": "keeper", "finalizers": ["elasticjob.dev/test"]}
    with api.namespace() as name:
        api.kubectl("-n", name, "create", "-f", "-", input=json.dumps({**_CONFIG_MAP, "metadata": metadata}))
        api.kubectl("delete", "namespace", name, "--wait=false")
        yield name
        patch = json.dumps({"metadata": {"finalizers": None}})
        api.kubectl("-n", name, "patch", "configmap", "keeper", "--type=merge", "-p", patch)


async def test_a_namespace_that_ends_keeps_no_event_of_others_back(api: Cluster, port: Port, jobs: Jobs) -> None:
    job, metrics = await reference(jobs), Metrics()
    poster = EventsPoster(cluster=port, clock=SystemClock(), instance="operator-1", metrics=metrics)
    with ending_namespace(api) as ending:
        poster.emit(occurrence(replace(job, namespace=ending), "JobFailed", "too late", warning=True))
        poster.emit(occurrence(job, "Scaled", "from 2 to 3 nodes"))
        task = asyncio.create_task(poster.run())

        async def told() -> bool:
            return [event["reason"] for event in await jobs.events()] == ["Scaled"]

        await eventually(told, what="the Event of the other namespace")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    refused = {"type": "Warning", "cause": "Forbidden"}
    assert metrics.registry.get_sample_value("elasticjob_events_dropped_total", refused) == 1
