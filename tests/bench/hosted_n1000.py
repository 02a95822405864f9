"""1,000 nodes of one run on the hosted rendezvous: what joining and staying cost the server process."""

import asyncio
import time

from .hosted_clients import Node, connect
from .hosted_server import Server, start

NODES = 1_000
STEADY_SECONDS = 20.0
SETTLE_SECONDS = 6.0
"""Time for the beats to spread out after all nodes began at once."""
RUN = "big"


def measure() -> dict[str, float]:
    with start() as server:
        server.order(RUN, list(range(NODES)), wait=True)
        nodes = [Node(run_id=RUN, index=index, token=server.token(RUN, index)) for index in range(NODES)]
        return asyncio.run(_measure(server, nodes))


async def _measure(server: Server, nodes: list[Node]) -> dict[str, float]:
    idle, writes = server.mib(), server.writes()
    joined = await _join(server, nodes)
    joined["hosted.join.n1000.durable_writes"] = server.writes() - writes
    for node in nodes:
        node.joining.close()
    await connect(server, [node.beating for node in nodes])
    beats = [asyncio.create_task(node.beat()) for node in nodes]
    await asyncio.sleep(SETTLE_SECONDS)
    steady = await _stay(server)
    if any(beat.done() for beat in beats):
        raise RuntimeError("a heartbeat ended although nothing happened")
    for beat in beats:
        beat.cancel()
    await asyncio.gather(*beats, return_exceptions=True)
    for node in nodes:
        node.beating.close()
    return {**joined, **steady, "hosted.n1000.mib_over_idle": server.mib() - idle}


async def _join(server: Server, nodes: list[Node]) -> dict[str, float]:
    cpu = server.cpu_seconds()
    await connect(server, [node.joining for node in nodes])
    connected = server.cpu_seconds()
    *first, last = nodes
    joins = [asyncio.create_task(node.join()) for node in first]
    await _until_idle(server)
    waiting = server.cpu_seconds()
    started = time.monotonic()
    await last.join()
    await asyncio.gather(*joins)
    released = server.cpu_seconds()
    parts = {"to connect": connected - cpu, "to wait": waiting - connected, "to release": released - waiting}
    print("    CPU of the server: " + ", ".join(f"{seconds:.2f} s {what}" for what, seconds in parts.items()))
    return {
        "hosted.join.n1000.seconds": max(node.released_at for node in nodes) - started,
        "hosted.join.n1000.server_cpu_seconds": released - cpu,
    }


async def _until_idle(server: Server) -> None:
    """Wait until the server has taken in all calls."""
    before = server.cpu_seconds()
    while True:
        await asyncio.sleep(0.3)
        now = server.cpu_seconds()
        if now - before < 0.005:
            return
        before = now


async def _stay(server: Server) -> dict[str, float]:
    writes, cpu, started = server.writes(), server.cpu_seconds(), time.monotonic()
    await asyncio.sleep(STEADY_SECONDS)
    used, passed = server.cpu_seconds() - cpu, time.monotonic() - started
    return {
        "hosted.steady.n1000.core_fraction": used / passed,
        "hosted.steady.n1000.durable_writes": server.writes() - writes,
    }
