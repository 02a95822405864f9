"""1,000 nodes of one run on the hosted rendezvous: what joining and staying cost the server process.

The same on a plain aiohttp server, in the same run, shows what of that is the machine's.
"""

import asyncio
import time

from . import hosted_server
from .hosted_clients import Dialer, Node, until
from .hosted_server import Server, start

NODES = 1_000
WAVE = 250
"""Nodes that join together. The handshakes of all may take the clients longer than the server waits for a call."""
STEADY_SECONDS = 20.0
SETTLE_SECONDS = 6.0
"""Time for the beats to spread out after all nodes began at once."""
TIMEOUT = 180.0
"""Seconds for everything, on a machine that is busy with other work."""
RUN = "big"
JOINS = 3
"""The CPU time of a join is the least of so many: what else runs on the machine, and below it, can only add to it."""
CPU = "hosted.join.n1000.server_cpu_seconds"
RATIOS = {
    CPU: "hosted.join.n1000.server_cpu_ratio_vs_aiohttp",
    "hosted.steady.n1000.core_fraction": "hosted.steady.n1000.core_ratio_vs_aiohttp",
    "hosted.n1000.mib_over_idle": "hosted.n1000.mib_ratio_vs_aiohttp",
}
"""What is divided by the figure of the server that one would write first, with the same clients."""


def measure() -> dict[str, float]:
    ours, peer = _measured(), _measured("tests.bench.aiohttp_server")
    return {**ours, **{RATIOS[name]: ours[name] / peer[name] for name in RATIOS}}


def _measured(module: str = hosted_server.__name__) -> dict[str, float]:
    runs = []
    for number in range(JOINS):
        with start(module) as server:
            server.order(RUN, list(range(NODES)), wait=module == hosted_server.__name__)
            runs.append(asyncio.run(_measure(server, stays=number == 0)))
    return {**runs[0], CPU: min(run[CPU] for run in runs)}


async def _measure(server: Server, *, stays: bool) -> dict[str, float]:
    nodes = [Node(run_id=RUN, index=index, token=server.token(RUN, index)) for index in range(NODES)]
    idle, writes, dialer = server.mib(), server.writes(), Dialer(server)
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        joined = await _join(server, nodes, dialer, group)
        joined["hosted.join.n1000.durable_writes"] = server.writes() - writes
        for node in nodes:
            node.joining.close()
        if not stays:
            return joined
        beats = [group.create_task(dialer.beat(node)) for node in nodes]
        await until(lambda: all(node.beats for node in nodes))
        await asyncio.sleep(SETTLE_SECONDS)
        steady = await _stay(server)
        if any(beat.done() for beat in beats):
            raise RuntimeError("a heartbeat ended although nothing happened")
        for beat in beats:
            beat.cancel()
    for node in nodes:
        node.beating.close()
    return {**joined, **steady, "hosted.n1000.mib_over_idle": server.mib() - idle}


async def _join(server: Server, nodes: list[Node], dialer: Dialer, group: asyncio.TaskGroup) -> dict[str, float]:
    *first, last = nodes
    cpu = server.cpu_seconds()
    joins: list[asyncio.Task[None]] = []
    for start_at in range(0, len(first), WAVE):
        wave = first[start_at : start_at + WAVE]
        await asyncio.gather(*(dialer.open(node.joining) for node in wave))
        joins += [group.create_task(node.join()) for node in wave]
    await until(lambda: server.held() == len(first))
    waiting, started = server.cpu_seconds(), time.monotonic()
    await dialer.join(last)
    await asyncio.gather(*joins)
    released = server.cpu_seconds()
    print(f"    CPU of the server: {waiting - cpu:.2f} s until all wait, {released - waiting:.2f} s to release them")
    return {
        "hosted.join.n1000.seconds": max(node.released_at for node in nodes) - started,
        CPU: released - cpu,
    }


async def _stay(server: Server) -> dict[str, float]:
    writes, cpu, started = server.writes(), server.cpu_seconds(), time.monotonic()
    await asyncio.sleep(STEADY_SECONDS)
    used, passed = server.cpu_seconds() - cpu, time.monotonic() - started
    return {
        "hosted.steady.n1000.core_fraction": used / passed,
        "hosted.steady.n1000.durable_writes": server.writes() - writes,
    }
