"""A pod is killed: how soon its fellows know. 1,000 nodes in 125 runs are connected, and one pod of each run is killed.

The time runs from the moment the host is given orders without the pod until a survivor has its heartbeat's answer, over
TLS. What comes before, the kubelet and the watch of pods, is not the rendezvous's.
"""

import asyncio
import statistics

from .hosted_clients import Dialer, Node, until
from .hosted_server import Server, start

RUNS, NODES = 125, 8
SETTLE_SECONDS = 6.0
TIMEOUT = 300.0
"""Seconds for everything, on a machine that is busy with other work."""
PAUSE_SECONDS = 0.04
"""Between two kills."""


def measure() -> dict[str, float]:
    with start() as server:
        for run in range(RUNS):
            server.order(f"run-{run}", list(range(NODES)), wait=True)
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> dict[str, float]:
    told: dict[str, list[float]] = {f"run-{run}": [] for run in range(RUNS)}
    nodes = [
        Node(
            run_id=run_id,
            index=index,
            token=server.token(run_id, index),
            told=lambda node, moment: told[node.run_id].append(moment),
        )
        for run_id in told
        for index in range(NODES)
    ]
    seconds: list[float] = []
    dialer = Dialer(server)
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        await asyncio.gather(*(dialer.join(node) for node in nodes))
        for node in nodes:
            node.joining.close()
        beats = [group.create_task(dialer.beat(node)) for node in nodes]
        await until(lambda: all(node.beats for node in nodes))
        await asyncio.sleep(SETTLE_SECONDS)
        for run_id, moments in told.items():
            seconds += await _kill(server, run_id, moments)
            await asyncio.sleep(PAUSE_SECONDS)
        for beat in beats:
            beat.cancel()
    for node in nodes:
        node.beating.close()
    return {"hosted.detect.pod_killed.p99_seconds": statistics.quantiles(seconds, n=100)[98]}


async def _kill(server: Server, run_id: str, moments: list[float]) -> list[float]:
    """Kill the last pod of a run. Returns after how many seconds each of its fellows knew."""
    if moments:
        raise RuntimeError(f"{run_id} lost a node that nobody killed")
    killed = await asyncio.to_thread(server.order, run_id, list(range(NODES - 1)))
    await until(lambda: len(moments) == NODES - 1, pause=0.001)
    return [moment - killed for moment in moments]
