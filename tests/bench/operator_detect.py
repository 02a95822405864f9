"""A pod is killed: how soon its fellows know, through the whole operator.

50 jobs of four nodes run, and one pod of each is deleted. The time runs from the call that deletes it, made to a real
API server, until a survivor has its heartbeat's answer, over TLS: the watch, the queue, the plan and the rendezvous lie
in between. `hosted_detect` measures the last of these alone, with more nodes.
"""

import asyncio
import statistics
import time
from collections.abc import Iterable

from elasticjob.operator.constants import LABEL_JOB_UID, LABEL_NODE_INDEX
from tests.bench.hosted_clients import Node, until
from tests.bench.jobs import ELASTIC_JOBS_PATH, RUN_SECONDS, elastic_job, until_quiet
from tests.bench.operator_site import OURS, PLAYER, Process, Site, site
from tests.bench.players import Dialer, Player, playing

JOBS, NODES = 50, 4
SETTLE_SECONDS = 6.0
"""Time for the beats to spread out after all nodes began at once."""
TOLD_SECONDS = 30.0
PAUSE_SECONDS = 0.3
"""Between two kills; the replacement is made in it."""


def measure() -> dict[str, float]:
    with site() as where, where.cluster.namespace() as namespace, where.elasticjob(namespace) as process:
        return asyncio.run(_measure(where, namespace, process))


async def _measure(where: Site, namespace: str, process: Process) -> dict[str, float]:
    path, position = ELASTIC_JOBS_PATH.format(namespace=namespace), where.position()
    told: dict[str, list[float]] = {}
    async with playing(where.kubeconfig(PLAYER), namespace) as player, asyncio.TaskGroup() as group:
        await asyncio.gather(*(player.call("POST", path, elastic_job(f"job-{n}", NODES)) for n in range(JOBS)))
        await player.until_running(JOBS * NODES, seconds=RUN_SECONDS)
        dialer, agents = Dialer(process.port), await _agents(player, told)
        joins = [group.create_task(_join(agent, dialer)) for agent in agents]
        await asyncio.gather(*joins)
        beats = [group.create_task(_beat(agent, dialer)) for agent in agents]
        await until_quiet(where, OURS, position)
        await asyncio.sleep(SETTLE_SECONDS)
        victims = [name for name in player.pods if name.endswith(f"-{NODES - 1}-0")]
        seconds = [second for name in victims for second in await _kill(player, name, told)]
        for task in beats:
            task.cancel()
    for agent in agents:
        agent.beating.close()
    return {
        "operator.detect.pod_deleted.median_seconds": statistics.median(seconds),
        "operator.detect.pod_deleted.p99_seconds": statistics.quantiles(seconds, n=100)[98],
    }


async def _agents(player: Player, told: dict[str, list[float]]) -> list[Node]:
    pods = list(player.pods.values())
    tokens = await asyncio.gather(*(player.token(pod["metadata"]["name"]) for pod in pods))
    return [_agent(pod["metadata"]["labels"], token, told) for pod, token in zip(pods, tokens, strict=True)]


def _agent(labels: dict[str, str], token: str, told: dict[str, list[float]]) -> Node:
    moments = told.setdefault(labels[LABEL_JOB_UID], [])
    return Node(
        run_id=labels[LABEL_JOB_UID],
        index=int(labels[LABEL_NODE_INDEX]),
        token=token,
        told=lambda node, moment: moments.append(moment),
    )


async def _join(agent: Node, dialer: Dialer) -> None:
    await dialer.connect(agent.joining)
    await agent.join()
    agent.joining.close()


async def _beat(agent: Node, dialer: Dialer) -> None:
    await dialer.connect(agent.beating)
    await agent.beat()


async def _kill(player: Player, name: str, told: dict[str, list[float]]) -> Iterable[float]:
    """Delete a pod. Returns after how many seconds each of its fellows knew."""
    moments = told[player.pods[name]["metadata"]["labels"][LABEL_JOB_UID]]
    began = time.monotonic()
    await player.call("DELETE", player.path(f"pods/{name}"), {"gracePeriodSeconds": 0})
    async with asyncio.timeout(TOLD_SECONDS):
        await until(lambda: len(moments) >= NODES - 1, pause=0.01)
    await asyncio.sleep(PAUSE_SECONDS)
    return [moment - began for moment in moments[: NODES - 1]]
