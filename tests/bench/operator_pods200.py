"""One job of 200 pods: ours against the training-operator v1.8.1, on one API server, in turn, several times.

Both run with their defaults, ours with leader election, TLS and everything else that it has. The time runs from the
moment the API server receives the job until it has created the last pod, both by its audit log; the writes are those
of the operator's user until every pod runs, the status says so, and nothing more comes. Ours are counted until the
rendezvous has formed too, which the peer does not do: its workers meet without it. Our agents join once all pods run,
so that the many clients, which share the machine, take no part in the comparison.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.audit import Call, count_by_kind, seconds_to_create, writes
from tests.bench.jobs import CONTAINER, ELASTIC_JOBS_PATH, elastic_job, until_quiet
from tests.bench.operator_site import OURS, PEER, PLAYER, Process, Site, site
from tests.bench.players import Player, playing, taking_part
from tests.bench.training_operator import TrainingOperator, training_operator

PODS = 200
TURNS = 3
RUN_SECONDS = 180.0
JOB = "big"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one job cost."""

    create: float
    writes: int
    cpu: float
    first_round: float = 0.0
    kinds: Mapping[str, int]


def measure() -> dict[str, float]:
    peer = training_operator()
    with site() as where:
        turns = [(_ours(where), _peer(where, peer)) for _ in range(TURNS)]
        unlimited = _peer(where, peer, "-unlimited")
    ours, theirs = turns[-1]
    print(f"    our writes: {_shown(ours.kinds)}")
    print(f"    writes of the peer: {_shown(theirs.kinds)}")
    return {
        "operator.pods200.create_ratio_vs_peer": statistics.median(o.create / t.create for o, t in turns),
        "operator.pods200.api_writes_ratio_vs_peer": statistics.median(o.writes / t.writes for o, t in turns),
        "operator.pods200.create_seconds": statistics.median(o.create for o, _ in turns),
        "operator.pods200.first_round_seconds": statistics.median(o.first_round for o, _ in turns),
        "operator.pods200.api_writes": statistics.median(o.writes for o, _ in turns),
        "operator.pods200.cpu_seconds": statistics.median(o.cpu for o, _ in turns),
        "operator.pods200.peer_create_seconds": statistics.median(t.create for _, t in turns),
        "operator.pods200.peer_api_writes": statistics.median(t.writes for _, t in turns),
        "operator.pods200.peer_cpu_seconds": statistics.median(t.cpu for _, t in turns),
        "operator.pods200.peer_unlimited_create_seconds": unlimited.create,
    }


def _shown(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))


def _ours(where: Site) -> Figures:
    with where.namespace() as namespace, where.elasticjob(namespace) as process:
        return asyncio.run(_run_ours(where, namespace, process))


def _peer(where: Site, peer: TrainingOperator, *arguments: str) -> Figures:
    with where.namespace() as namespace, where.training_operator(peer, *arguments) as process:
        return asyncio.run(_run_peer(where, namespace, process))


async def _run_ours(where: Site, namespace: str, process: Process) -> Figures:
    position, cpu = where.position(), process.cpu_seconds()
    path = ELASTIC_JOBS_PATH.format(namespace=namespace)
    async with playing(where.kubeconfig(PLAYER), namespace) as player:
        began = time.monotonic()
        await player.call("POST", path, elastic_job(JOB, PODS))
        await player.until_running(PODS, seconds=RUN_SECONDS)
        async with taking_part(player, process.port) as agents:
            joined = max(agent.released_at for agent in agents) - began
            await _settle(where, player, f"{path}/{JOB}", OURS, position, _runs_ours)
    calls = where.calls(position)
    return _figures(calls, namespace, OURS, "elasticjobs", cpu=process.cpu_seconds() - cpu, first_round=joined)


async def _run_peer(where: Site, namespace: str, process: Process) -> Figures:
    position, cpu = where.position(), process.cpu_seconds()
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    async with playing(where.kubeconfig(PLAYER), namespace) as player:
        await player.call("POST", path, pytorch_job(JOB, PODS))
        await player.until_running(PODS, seconds=RUN_SECONDS)
        await _settle(where, player, f"{path}/{JOB}", PEER, position, _runs_peers)
    return _figures(where.calls(position), namespace, PEER, "pytorchjobs", cpu=process.cpu_seconds() - cpu)


def _figures(
    calls: list[Call], namespace: str, user: str, resource: str, *, cpu: float, first_round: float = 0.0
) -> Figures:
    own = [call for call in calls if call.namespace == namespace]
    made = writes(calls, user)
    seconds = seconds_to_create(own, job=JOB, resource=resource, pods=PODS)
    return Figures(create=seconds, writes=len(made), cpu=cpu, first_round=first_round, kinds=count_by_kind(made))


async def _settle(
    where: Site, player: Player, job: str, user: str, position: int, runs: Callable[[dict[str, Any]], bool]
) -> None:
    """Wait until the status says that all pods run, and the operator writes nothing but its lease any more."""
    async with asyncio.timeout(RUN_SECONDS):
        while not runs(await player.get(job)):  # noqa: ASYNC110 - a watch would be one more load
            await asyncio.sleep(0.5)
    await until_quiet(where, user, position)


def _runs_ours(job: dict[str, Any]) -> bool:
    return bool(job.get("status", {}).get("nodeCounts", {}).get("running") == PODS)


def _runs_peers(job: dict[str, Any]) -> bool:
    return bool(job.get("status", {}).get("replicaStatuses", {}).get("Worker", {}).get("active") == PODS)


def pytorch_job(name: str, nodes: int) -> dict[str, Any]:
    """The same job of the peer."""
    template = {"spec": {"containers": [{"name": "pytorch", **CONTAINER}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "elasticPolicy": {"rdzvBackend": "c10d", "minReplicas": nodes, "maxReplicas": nodes},
            "nprocPerNode": "1",
            "pytorchReplicaSpecs": {"Worker": {"replicas": nodes, "restartPolicy": "OnFailure", "template": template}},
        },
    }
