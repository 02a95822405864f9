"""Jobs of ours for benchmarks, and how many of them are brought to run."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tests.bench.audit import Call, writes
from tests.bench.operator_site import OURS, PLAYER, Process, Site
from tests.bench.players import Player, playing, taking_part

ELASTIC_JOBS_PATH = "/apis/elasticjob.dev/v1alpha1/namespaces/{namespace}/elasticjobs"
CONTAINER = {"image": "registry.example/train:1", "command": ["torchrun", "train.py"]}
RUN_SECONDS = 600.0
QUIET_SECONDS = 3.0


def elastic_job(name: str, nodes: int, **spec: Any) -> dict[str, Any]:
    """A job that needs all of its nodes."""
    return {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "replicas": nodes,
            "minReplicas": nodes,
            "maxReplicas": nodes,
            "template": {"spec": {"containers": [{"name": "worker", **CONTAINER}]}},
            **spec,
        },
    }


@contextlib.asynccontextmanager
async def running(
    where: Site, process: Process, namespace: str, jobs: Iterable[dict[str, Any]]
) -> AsyncIterator[Player]:
    """Have jobs run, with all agents in their rounds and nothing more to do, for the time of the block."""
    position = where.position()
    async with playing(where.kubeconfig(PLAYER), namespace) as player:
        path = ELASTIC_JOBS_PATH.format(namespace=namespace)
        made = await asyncio.gather(*(player.call("POST", path, job) for job in jobs))
        await player.until_running(sum(job["spec"]["replicas"] for job in made), seconds=RUN_SECONDS)
        async with taking_part(player, process.port):
            await until_quiet(where, OURS, position)
            yield player


async def until_quiet(where: Site, user: str, position: int) -> None:
    """Wait until an operator has written nothing but its lease for a while."""
    last = 0.0
    while True:
        calls, position = where.follow(position)
        last = max((call.answered for call in job_writes(calls, user)), default=last)
        if time.time() - last >= QUIET_SECONDS:
            return
        await asyncio.sleep(0.5)


def job_writes(calls: Iterable[Call], user: str) -> list[Call]:
    """The writes of an operator for its jobs. The lease by which it leads is renewed whatever there is to do."""
    return [call for call in writes(calls, user) if call.resource != "leases"]
