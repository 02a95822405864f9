"""What a rendezvous event costs from the coordinator's word to the Event: the CPU time of the whole process.

The events take the operator's way: its recorder's thread, the delivery of `elasticjob.events`, the mirror, the pump and
the poster. Only the API server is missing; the few Events that the limits let pass are counted. The least of several
runs counts: whatever else the machine does only adds to it.
"""

import asyncio
import time
from typing import Any

from elasticjob.events import NodeState
from elasticjob.events.delivery import carriers
from elasticjob.operator.clock import SystemClock
from elasticjob.operator.constants import API_VERSION, KIND
from elasticjob.operator.controller import PUMP_PERIOD
from elasticjob.operator.hosting.records import CAPACITY, Recorder
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.mirror.mirror import DESTINATION, EventMirror
from elasticjob.operator.mirror.poster import EventsPoster
from elasticjob.operator.ports import Body, ObjectReference, Resource
from elasticjob.rendezvous.coordinator import Record

NODES = 500
EVENTS = CAPACITY
RUNS = 5
UID = "0b6a5d1e-0000-4000-8000-000000000001"


class Counting:
    """The part of the cluster that takes Events."""

    def __init__(self) -> None:
        self.written = 0

    async def create(self, resource: Resource, body: Body, *, namespace: str | None) -> Body:
        self.written += 1
        return body

    async def patch(self, resource: Resource, patch: Body, *, namespace: str | None, name: str) -> Body:
        self.written += 1
        return patch


def measure() -> dict[str, float]:
    seconds = [asyncio.run(_run()) for _ in range(RUNS)]
    return {"mirror.cpu_ms_per_event": min(seconds) / EVENTS * 1000}


async def _run() -> float:
    cluster: Any = Counting()
    clock, recorder, metrics = SystemClock(), Recorder(), Metrics()
    mirror = EventMirror(clock=clock)
    poster = EventsPoster(cluster=cluster, clock=clock, instance="bench", metrics=metrics)
    job = ObjectReference(api_version=API_VERSION, kind=KIND, namespace="train", name="digits", uid=UID)
    mirror.follow(job, pods=[f"digits-{index}-0" for index in range(NODES)])
    mirror.install()
    facts = [_fact(number) for number in range(EVENTS)]
    tasks = [asyncio.create_task(poster.run()), asyncio.create_task(_pump(mirror, poster, clock))]
    began = time.process_time()
    for fact in facts:
        recorder.record(UID, fact)
    recorder.start()
    await asyncio.to_thread(recorder.stop, 60.0)
    await asyncio.to_thread(carriers.to(DESTINATION).flush, time.monotonic() + 60.0)
    await asyncio.sleep(3 * PUMP_PERIOD)
    used = time.process_time() - began
    mirror.uninstall()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if not cluster.written:
        raise RuntimeError("no Event was written")
    return used


async def _pump(mirror: EventMirror, poster: EventsPoster, clock: SystemClock) -> None:
    while True:
        for occurrence in mirror.drain(clock.now()):
            poster.emit(occurrence)
        await asyncio.sleep(PUMP_PERIOD)


def _fact(number: int) -> Record:
    index = number % NODES
    lost = number % 50 == 0
    return Record(
        name="NodeLost" if lost else "NodeJoined",
        message=f"digits-{index} {'is lost: its pod is gone' if lost else 'joined'} (call {number})",
        node_state=NodeState.FAILED if lost else NodeState.INIT,
        pod=f"digits-{index}-0",
        index=index,
        pid=4_000_000,
    )
