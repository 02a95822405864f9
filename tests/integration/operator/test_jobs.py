"""Jobs as one operator serves them."""

import asyncio

import pytest

from elasticjob.operator.ports import Resource
from elasticjob.operator.resources import DISRUPTION_BUDGETS, EVENTS, JOBS, PODS, SERVICES
from tests.integration.operator.operators import Jobs, Operator, eventually, settled

pytestmark = pytest.mark.timeout(600, func_only=True)

QUOTAS = Resource(group="", version="v1", plural="resourcequotas")
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}


async def has_pods(jobs: Jobs, count: int) -> bool:
    return len(await jobs.children()) == count


async def test_a_job_gets_its_pods_owned_by_it(operator: Operator, jobs: Jobs) -> None:
    job = await jobs.create(replicas=3)
    await eventually(lambda: has_pods(jobs, 3), what="three pods")
    assert await jobs.pod_names() == ["digits-0-0", "digits-1-0", "digits-2-0"]
    for child in [*await jobs.children(), *await jobs.children(SERVICES)]:
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] == job["metadata"]["uid"]
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is True


async def test_an_idle_job_is_left_alone(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=3)
    await eventually(lambda: has_pods(jobs, 3), what="three pods")
    await eventually(lambda: is_counted(jobs, 3), what="a status with three nodes")
    writes = await settled(lambda: operator.count("put", "elasticjobs"))
    version = (await jobs.get())["metadata"]["resourceVersion"]
    await asyncio.sleep(4)
    assert (await jobs.get())["metadata"]["resourceVersion"] == version
    assert operator.count("put", "elasticjobs") == writes
    assert operator.count("post", "pods") == 3


async def is_counted(jobs: Jobs, nodes: int) -> bool:
    status = (await jobs.get()).get("status") or {}
    return len([node for node in status.get("nodes", []) if node.get("podUID")]) == nodes


async def test_a_label_of_somebody_else_costs_no_write_and_stays(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=1)
    await eventually(lambda: is_counted(jobs, 1), what="a status")
    writes = await settled(lambda: operator.count("put", "elasticjobs"))
    for number in range(20):
        patch = {"metadata": {"labels": {"gitops": str(number)}}}
        await jobs.port.patch(JOBS, patch, namespace=jobs.namespace, name="digits")
    await asyncio.sleep(1)
    assert operator.count("put", "elasticjobs") == writes
    assert (await jobs.get())["metadata"]["labels"] == {"gitops": "19"}


async def test_a_status_survives_foreign_writes_in_between(operator: Operator, jobs: Jobs) -> None:
    async def disturb() -> None:
        for number in range(60):
            patch = {"metadata": {"annotations": {"n": str(number)}}}
            await jobs.port.patch(JOBS, patch, namespace=jobs.namespace, name="digits")
            await asyncio.sleep(0.02)

    await jobs.create(replicas=8)
    await asyncio.gather(disturb(), eventually(lambda: is_counted(jobs, 8), what="a status of eight nodes"))
    assert (await jobs.get())["metadata"]["annotations"]["n"] == "59"


async def test_a_quota_is_told_in_the_words_of_the_api_and_lifted_without_help(operator: Operator, jobs: Jobs) -> None:
    quota = await jobs.port.create(QUOTAS, dict(QUOTA), namespace=jobs.namespace)
    await eventually(lambda: quota_is_enforced(jobs), what="a quota that is enforced")
    await jobs.create(replicas=200)
    await eventually(lambda: says(jobs, "exceeded quota: none"), what="the quota in a condition")
    assert await jobs.children() == []
    assert operator.count("post", "pods") <= 5
    await jobs.port.delete(QUOTAS, namespace=jobs.namespace, name="none", uid=quota["metadata"]["uid"])
    await eventually(lambda: has_pods(jobs, 200), what="all pods once the quota is lifted")


async def quota_is_enforced(jobs: Jobs) -> bool:
    quota = await jobs.port.get(QUOTAS, namespace=jobs.namespace, name="none")
    return bool((quota.get("status") or {}).get("hard"))


async def says(jobs: Jobs, words: str) -> bool:
    conditions = (await jobs.get()).get("status", {}).get("conditions", [])
    return any(words in one.get("message", "") for one in conditions)


async def test_a_pod_of_somebody_else_in_the_way_is_told_and_left(operator: Operator, jobs: Jobs) -> None:
    spec = {"containers": [{"name": "theirs", "image": "i"}]}
    stranger = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "digits-0-0"}, "spec": spec}
    theirs = await jobs.port.create(PODS, stranger, namespace=jobs.namespace)
    await jobs.create(replicas=2)
    await eventually(lambda: says(jobs, "already exists and is not controlled by this job"), what="a condition")
    left = await jobs.port.get(PODS, namespace=jobs.namespace, name="digits-0-0")
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]


async def test_a_disruption_budget_follows_the_minimum(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=3, minReplicas=1)
    await eventually(lambda: protects(jobs, 1), what="a budget that keeps one node")
    await change(jobs, minReplicas=2)
    await eventually(lambda: protects(jobs, 2), what="a budget that keeps two nodes")
    await change(jobs, minReplicas=3)
    await eventually(lambda: protects(jobs), what="no budget")


async def test_the_replacement_of_a_failed_pod_prefers_other_machines(operator: Operator, jobs: Jobs) -> None:
    container = {"name": "worker", "image": "i"}
    await jobs.create(replicas=1, template={"spec": {"nodeName": "machine-7", "containers": [container]}})
    await eventually(lambda: is_counted(jobs, 1), what="a status")
    status = {"phase": "Failed", "reason": "Evicted"}
    await jobs.port.patch(PODS, {"status": status}, namespace=jobs.namespace, name="digits-0-0", subresource="status")
    await eventually(lambda: prefers_another(jobs, "digits-0-1", "machine-7"), what="a pod that avoids the machine")


async def prefers_another(jobs: Jobs, name: str, machine: str) -> bool:
    pod = next((one for one in await jobs.children() if one["metadata"]["name"] == name), None)
    if pod is None:
        return False
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return bool(term["preference"]["matchFields"][0]["values"] == [machine])


async def change(jobs: Jobs, **spec: int) -> None:
    await jobs.port.patch(JOBS, {"spec": spec}, namespace=jobs.namespace, name="digits")


async def protects(jobs: Jobs, *least: int) -> bool:
    return [one["spec"]["minAvailable"] for one in await jobs.children(DISRUPTION_BUDGETS)] == [*least]


async def test_a_job_deleted_during_its_creation_leaves_nothing(operator: Operator, jobs: Jobs) -> None:
    job = await jobs.create(replicas=100)
    await eventually(lambda: has_some_pods(jobs), what="the first pods")
    await jobs.delete(job)
    await eventually(jobs.is_gone, what="the job is gone")
    created = operator.count("post", "pods")
    await eventually(lambda: nothing_is_left(jobs), what="nothing is left")
    await asyncio.sleep(1)
    # The calls that were under way when the job vanished; the garbage collector takes what they made.
    assert operator.count("post", "pods") <= created + operator.app.settings.pod_parallelism
    assert await nothing_is_left(jobs)


async def has_some_pods(jobs: Jobs) -> bool:
    return bool(await jobs.children())


async def nothing_is_left(jobs: Jobs) -> bool:
    return not await jobs.children() and not await jobs.children(SERVICES)


async def test_a_job_that_fails_to_be_created_is_deleted_at_once(operator: Operator, jobs: Jobs) -> None:
    await jobs.port.create(QUOTAS, dict(QUOTA), namespace=jobs.namespace)
    await eventually(lambda: quota_is_enforced(jobs), what="a quota that is enforced")
    job = await jobs.create(replicas=2)
    await eventually(lambda: says(jobs, "exceeded quota"), what="the quota in a condition")
    await jobs.delete(job)
    await eventually(jobs.is_gone, what="the job is gone")


async def test_a_finished_pod_is_seen_by_its_job(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=1)
    await eventually(lambda: has_pods(jobs, 1), what="a pod")
    ended = {"name": "worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    ended |= {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    status = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
    await jobs.port.patch(PODS, status, namespace=jobs.namespace, name="digits-0-0", subresource="status")
    await eventually(lambda: is_true(jobs, "Succeeded"), what="the job has succeeded")


async def is_true(jobs: Jobs, condition: str) -> bool:
    return (await jobs.condition(condition)).get("status") == "True"


async def test_people_are_told_by_events_about_the_job(operator: Operator, jobs: Jobs) -> None:
    job = await jobs.create(replicas=1)
    await eventually(lambda: has_event(jobs, "JobStarted"), what="an Event")
    (event,) = [one for one in await jobs.events() if one["reason"] == "JobStarted"]
    assert event["regarding"]["uid"] == job["metadata"]["uid"]
    assert event["reportingController"] == "elasticjob.dev/operator"
    await eventually(lambda: operator.count("post", EVENTS.plural) > 0, what="its call is counted")


async def has_event(jobs: Jobs, reason: str) -> bool:
    return any(one["reason"] == reason for one in await jobs.events())
