"""500 jobs that run, and nothing changes: what they cost the operator.

Each job has one node, whose agent sends heartbeats over TLS. `core_fraction` is what the jobs cost by themselves:
watches, reconciling, leading, mirroring. What serving the heartbeats of their 500 agents costs comes on top of it and
is measured apart, by the thread that does it: it depends on agents, not on jobs. Writes are those for jobs, by the
audit log.
"""

import asyncio
import time
from dataclasses import dataclass

from tests.bench.audit import count_by_kind
from tests.bench.jobs import elastic_job, job_writes, running
from tests.bench.operator_site import OURS, Process, Site, site

JOBS = 500
SETTLE_SECONDS = 6.0
"""Time for the beats to spread out after all nodes began at once."""
IDLE_SECONDS = 30.0


def measure() -> dict[str, float]:
    with site() as where, where.cluster.namespace() as namespace, where.elasticjob(namespace) as process:
        return asyncio.run(_measure(where, namespace, process))


async def _measure(where: Site, namespace: str, process: Process) -> dict[str, float]:
    jobs = [elastic_job(f"job-{number}", 1) for number in range(JOBS)]
    async with running(where, process, namespace, jobs):
        await asyncio.sleep(SETTLE_SECONDS)
        position, before, began = where.position(), _Used.by(process), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        after, passed = _Used.by(process), time.monotonic() - began
        made = job_writes(where.calls(position), OURS)
    if made:
        print(f"    writes: {dict(count_by_kind(made))}")
    heartbeats = after.rendezvous - before.rendezvous
    return {
        "operator.idle500.core_fraction": (after.all - before.all - heartbeats) / passed,
        "operator.idle500.heartbeats_core_fraction": heartbeats / passed,
        "operator.idle500.api_writes": len(made),
    }


@dataclass(frozen=True, kw_only=True)
class _Used:
    """CPU seconds of the process, and those of the thread that serves the agents among them."""

    all: float
    rendezvous: float

    @classmethod
    def by(cls, process: Process) -> "_Used":
        rendezvous = process.cpu_seconds("rendezvous")
        if not rendezvous:
            raise RuntimeError("the operator has no thread that serves agents")
        return cls(all=process.cpu_seconds(), rendezvous=rendezvous)
