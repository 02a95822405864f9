"""20 jobs of 100 pods that run, with all agents connected: the operator's memory."""

import asyncio

from tests.bench.jobs import elastic_job, running
from tests.bench.operator_site import Process, Site, site

JOBS, PODS = 20, 100


def measure() -> dict[str, float]:
    with site() as where, where.cluster.namespace() as namespace, where.elasticjob(namespace) as process:
        return asyncio.run(_measure(where, namespace, process))


async def _measure(where: Site, namespace: str, process: Process) -> dict[str, float]:
    idle = process.mib()
    async with running(where, process, namespace, [elastic_job(f"job-{number}", PODS) for number in range(JOBS)]):
        return {"operator.pods2000.rss_mib": process.mib(), "operator.pods0.rss_mib": idle}
