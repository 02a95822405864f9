"""A job of 500 nodes in turmoil: what the operator writes about it.

Every agent joins and leaves, again and again as fast as it is answered, while the pods become ready and unready. So
there are thousands of rendezvous events and watch events a minute; what counts is how many status writes and Events
they become.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass

from elasticjob.operator.constants import LABEL_JOB_UID, LABEL_NODE_INDEX
from tests.bench.audit import Call, count_by_kind, most_in_a_second
from tests.bench.hosted_clients import Node
from tests.bench.jobs import ELASTIC_JOBS_PATH, RUN_SECONDS, elastic_job, job_writes
from tests.bench.operator_site import OURS, PLAYER, Process, Site, site
from tests.bench.players import Dialer, Player, playing

NODES = 500
FLOOD_SECONDS = 60.0
FLAPPING = 4
"""Pods whose status is written at a time."""
JOB = "turmoil"


@dataclass
class Turmoil:
    """What was done to the operator."""

    calls: int = 0
    refused: int = 0
    flaps: int = 0


def measure() -> dict[str, float]:
    with site() as where, where.cluster.namespace() as namespace, where.elasticjob(namespace) as process:
        return asyncio.run(_measure(where, namespace, process))


async def _measure(where: Site, namespace: str, process: Process) -> dict[str, float]:
    path = ELASTIC_JOBS_PATH.format(namespace=namespace)
    async with playing(where.kubeconfig(PLAYER), namespace) as player:
        await player.call("POST", path, elastic_job(JOB, NODES, minReplicas=1))
        await player.until_running(NODES, seconds=RUN_SECONDS)
        agents = await _agents(player, process.port)
        position, began, cpu, turmoil = where.position(), time.monotonic(), process.cpu_seconds(), Turmoil()
        await _rage(player, agents, turmoil)
        passed, used = time.monotonic() - began, process.cpu_seconds() - cpu
        calls = job_writes(where.calls(position), OURS)
        job = await player.get(f"{path}/{JOB}")
    for agent in agents:
        agent.joining.close()
    if job["status"]["phase"] in ("Failed", "Succeeded"):
        raise RuntimeError(f"the turmoil ended the job: {job['status']['conditions']}")
    print(f"    {turmoil} in {passed:.1f} s, {used / passed:.2f} of a core; writes: {dict(count_by_kind(calls))}")
    return _figures(calls, turmoil, passed)


def _figures(calls: list[Call], turmoil: Turmoil, passed: float) -> dict[str, float]:
    statuses = [call for call in calls if call.kind == "update elasticjobs/status"]
    events = [call for call in calls if call.resource == "events"]
    return {
        "flood.n500.status_writes_per_second": len(statuses) / passed,
        "flood.n500.status_writes_in_one_second": most_in_a_second(statuses),
        "flood.n500.events_per_second": len(events) / passed,
        "flood.n500.rendezvous_calls_per_second": turmoil.calls / passed,
        "flood.n500.pod_changes_per_second": turmoil.flaps / passed,
    }


async def _agents(player: Player, port: int) -> list[Node]:
    pods = [pod["metadata"] for pod in player.pods.values()]
    tokens = await asyncio.gather(*(player.token(meta["name"]) for meta in pods))
    agents = [
        Node(run_id=meta["labels"][LABEL_JOB_UID], index=int(meta["labels"][LABEL_NODE_INDEX]), token=token)
        for meta, token in zip(pods, tokens, strict=True)
    ]
    dialer = Dialer(port)
    await asyncio.gather(*(dialer.connect(agent.joining) for agent in agents))
    return agents


async def _rage(player: Player, agents: list[Node], turmoil: Turmoil) -> None:
    flapping = [
        _flap(player, [agent.index for agent in agents[number::FLAPPING]], turmoil) for number in range(FLAPPING)
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLOOD_SECONDS):
            await asyncio.gather(*(_come_and_go(agent, turmoil) for agent in agents), *flapping)


async def _come_and_go(agent: Node, turmoil: Turmoil) -> None:
    """Join and leave for ever, each time as another process."""
    turn = 0
    while True:
        turn += 1
        me = {"incarnation": f"i-{agent.index}-{turn}", "round": 0}
        joining = {**me, "address": f"10.0.{agent.index // 250}.{agent.index % 250}", "pid": turn, "wait": 0}
        leaving = {**me, "outcome": "left", "exitCode": None, "message": "\x1b[31m<gone>\x1b[0m " * 50}
        for request in (agent.request("POST", "join", joining), agent.request("POST", "leave", leaving)):
            answer = await agent.joining.call(request)
            turmoil.calls += 1
            turmoil.refused += answer.startswith(b"HTTP/")


async def _flap(player: Player, indexes: list[int], turmoil: Turmoil) -> None:
    """Have pods become unready and ready for ever."""
    ready = True
    while True:
        ready = not ready
        for index in indexes:
            condition = {"type": "Ready", "status": str(ready)}
            path = player.path(f"pods/{JOB}-{index}-0/status")
            await player.call("PATCH", path, {"status": {"conditions": [condition]}}, "application/merge-patch+json")
            turmoil.flaps += 1
