"""500 jobs that run, and nothing changes: what they cost the operator.

Each job has one node, whose agent sends heartbeats over TLS. CPU time is that of the operator's whole process: watches,
reconciling and rendezvous. Writes are those for jobs, by the audit log.
"""

import asyncio
import time

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
        position, cpu, began = where.position(), process.cpu_seconds(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        used, passed = process.cpu_seconds() - cpu, time.monotonic() - began
        made = job_writes(where.calls(position), OURS)
    if made:
        print(f"    writes: {dict(count_by_kind(made))}")
    return {"operator.idle500.core_fraction": used / passed, "operator.idle500.api_writes": len(made)}
