"""A job that is created anew under the name of a deleted one, before the garbage collector has done its work."""

import pytest

from elasticjob.operator.ports import Body
from elasticjob.operator.resources import SERVICES
from tests.integration.operator.operators import Jobs, Operator, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

HOLD = {"metadata": {"finalizers": ["elasticjob.test/hold"]}}
RELEASE: Body = {"metadata": {"finalizers": None}}
WAITS = "Waits for Service digits of the deleted job of the same name to be removed"


async def test_a_job_waits_for_what_its_predecessor_has_left(operator: Operator, jobs: Jobs) -> None:
    former = await jobs.create(replicas=2)
    await eventually(lambda: owns(jobs, former, pods=2), what="the first job is whole")
    await jobs.port.patch(SERVICES, HOLD, namespace=jobs.namespace, name="digits")
    await jobs.delete(former)
    await eventually(jobs.is_gone, what="the first job is gone")
    job = await jobs.create(replicas=2)
    await eventually(lambda: says(jobs, WAITS), what="the job says what it waits for")
    await jobs.port.patch(SERVICES, RELEASE, namespace=jobs.namespace, name="digits")
    await eventually(lambda: owns(jobs, job, pods=2), what="the second job is whole")
    told = [one for one in await jobs.events() if one["regarding"]["uid"] == job["metadata"]["uid"]]
    assert [one["note"] for one in told if one["type"] == "Warning"] == []


async def says(jobs: Jobs, words: str) -> bool:
    ready = await jobs.condition("Ready")
    return words in ready.get("message", "") and ready["reason"] == "PredecessorRemains"


async def owns(jobs: Jobs, job: Body, *, pods: int) -> bool:
    children = [*await jobs.children(), *await jobs.children(SERVICES)]
    owners = {owner["uid"] for child in children for owner in child["metadata"]["ownerReferences"]}
    return owners == {job["metadata"]["uid"]} and len(children) == pods + 1
