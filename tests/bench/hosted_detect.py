"""A pod is killed: how soon its fellows know. 1,000 nodes in 125 runs are connected, and one pod of each run is killed.

The time runs from the moment the host is given orders without the pod until a survivor has its heartbeat's answer, over
TLS. What comes before, the kubelet and the watch of pods, is not the rendezvous's.
"""

import asyncio
import statistics

from .hosted_clients import Node, connect
from .hosted_server import Server, start

RUNS, NODES = 125, 8
SETTLE_SECONDS = 6.0
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
    await connect(server, [node.joining for node in nodes])
    await asyncio.gather(*(node.join() for node in nodes))
    for node in nodes:
        node.joining.close()
    await connect(server, [node.beating for node in nodes])
    beats = [asyncio.create_task(node.beat()) for node in nodes]
    await asyncio.sleep(SETTLE_SECONDS)
    seconds: list[float] = []
    for run_id, moments in told.items():
        killed = await asyncio.to_thread(server.order, run_id, list(range(NODES - 1)))
        while len(moments) < NODES - 1:  # noqa: ASYNC110 - the answers come in on this loop
            await asyncio.sleep(0.001)
        seconds += [moment - killed for moment in moments]
        await asyncio.sleep(PAUSE_SECONDS)
    for beat in beats:
        beat.cancel()
    await asyncio.gather(*beats, return_exceptions=True)
    for node in nodes:
        node.beating.close()
    return {"hosted.detect.pod_killed.p99_seconds": statistics.quantiles(seconds, n=100)[98]}
