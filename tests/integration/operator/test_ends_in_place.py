"""Workers that the kubelet (played by the test) restarts in their pods, and operators that follow each other."""

import pytest

from elasticjob.operator.cluster import Connect
from elasticjob.operator.ports import Body
from elasticjob.operator.resources import PODS
from elasticjob.operator.settings import Settings
from tests.integration.operator.conftest import running
from tests.integration.operator.operators import Jobs, Operator, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

TRY_AGAIN = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
WRONG_ARGUMENTS = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}
TEMPLATE = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "worker", "image": "i"}]}}


async def ends_in_place(jobs: Jobs, code: int, *, restarts: int) -> None:
    """The worker has ended and is running again."""
    ended = {"exitCode": code, "reason": "Error"}
    worker = {"name": "worker", "image": "i", "imageID": "", "ready": True, "restartCount": restarts}
    worker |= {"state": {"running": {}}, "lastState": {"terminated": ended}}
    status: Body = {"status": {"phase": "Running", "containerStatuses": [worker]}}
    await jobs.port.patch(PODS, status, namespace=jobs.namespace, name="digits-1-0", subresource="status")


async def counts(jobs: Jobs, *, failures: int, disruptions: int) -> bool:
    found = (await jobs.get()).get("status", {}).get("restarts", {})
    return (found.get("failures"), found.get("disruptions")) == (failures, disruptions)


async def has_pods(jobs: Jobs) -> bool:
    return await jobs.pod_names() == ["digits-0-0", "digits-1-0"]


async def test_each_end_in_place_is_judged_and_counted_once_by_all_operators_together(
    settings: Settings, connect: Connect, jobs: Jobs
) -> None:
    await jobs.create(replicas=2, template=TEMPLATE, restartPolicy={"rules": [TRY_AGAIN, WRONG_ARGUMENTS]})
    async with running(Operator(settings, connect)):
        await eventually(lambda: has_pods(jobs), what="two pods")
        await ends_in_place(jobs, 42, restarts=1)
        await eventually(lambda: counts(jobs, failures=0, disruptions=1), what="an ignored end")
    async with running(Operator(settings, connect)):
        await ends_in_place(jobs, 7, restarts=2)
        await eventually(lambda: counts(jobs, failures=1, disruptions=1), what="a counted end")
        await ends_in_place(jobs, 2, restarts=3)
        await eventually(lambda: failed_by_rule(jobs), what="the job has failed")
    assert await counts(jobs, failures=2, disruptions=1)
    assert (await jobs.get())["status"]["ledger"]["endsInPlace"] == "1:3"


async def failed_by_rule(jobs: Jobs) -> bool:
    failed = await jobs.condition("Failed")
    return failed.get("status") == "True" and failed["reason"] == "FailureRule"
