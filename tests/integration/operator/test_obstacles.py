"""What the API server refuses, in its own words, and what follows once nothing is in the way any more."""

from typing import Any

import pytest

from elasticjob.operator.ports import Body, Resource
from tests.integration.operator.operators import Jobs, Operator, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

CORE = {"group": "", "version": "v1"}
SERVICE_ACCOUNTS = Resource(**CORE, plural="serviceaccounts")
LIMIT_RANGES = Resource(**CORE, plural="limitranges")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses")


def pod(**spec: Any) -> Body:
    return {"spec": {"containers": [{"name": "worker", "image": "i"}], **spec}}


async def says(jobs: Jobs, *words: str) -> bool:
    ready = await jobs.condition("Ready")
    return ready.get("reason") == "CreationRefused" and all(one in ready["message"] for one in words)


async def has_pods(jobs: Jobs, count: int) -> bool:
    return len(await jobs.children()) == count


async def assert_nothing_was_counted(jobs: Jobs) -> None:
    assert (await jobs.get())["status"]["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 0}


async def test_a_service_account_that_is_missing(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=2, template=pod(serviceAccountName="trainer"))
    await eventually(lambda: says(jobs, 'serviceaccount "trainer" not found'), what="the words of the API server")
    account: Body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    await jobs.port.create(SERVICE_ACCOUNTS, account, namespace=jobs.namespace)
    await eventually(lambda: has_pods(jobs, 2), what="two pods")
    await assert_nothing_was_counted(jobs)


async def test_a_limit_that_the_pods_exceed(operator: Operator, jobs: Jobs) -> None:
    limits = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    body: Body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, **limits}
    limit = await jobs.port.create(LIMIT_RANGES, body, namespace=jobs.namespace)
    large = {"name": "worker", "image": "i", "resources": {"limits": {"cpu": "2"}}}
    await jobs.create(replicas=2, template={"spec": {"containers": [large]}})
    await eventually(lambda: says(jobs, "maximum cpu usage per Container is 1, but limit is 2"), what="the limit")
    await jobs.port.delete(LIMIT_RANGES, namespace=jobs.namespace, name="small", uid=limit["metadata"]["uid"])
    await eventually(lambda: has_pods(jobs, 2), what="two pods")
    await assert_nothing_was_counted(jobs)


async def test_a_priority_class_that_is_missing(operator: Operator, jobs: Jobs) -> None:
    name = f"priority-{jobs.namespace}"
    await jobs.create(replicas=2, template=pod(priorityClassName=name))
    await eventually(lambda: says(jobs, f"no PriorityClass with name {name} was found"), what="the class")
    body: Body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1}
    created = await jobs.port.create(PRIORITY_CLASSES, body, namespace=None)
    await eventually(lambda: has_pods(jobs, 2), what="two pods")
    await assert_nothing_was_counted(jobs)
    await jobs.port.delete(PRIORITY_CLASSES, namespace=None, name=name, uid=created["metadata"]["uid"])


async def test_a_template_that_no_pod_can_be_made_of_ends_the_job(operator: Operator, jobs: Jobs) -> None:
    broken = {"name": "worker", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    await jobs.create(replicas=2, template={"spec": {"containers": [broken]}})
    await eventually(lambda: failed(jobs, "InvalidTemplate"), what="the job has failed")
    message = (await jobs.condition("Failed"))["message"]
    assert 'spec.containers[0].volumeMounts[0].name: Not found: "data"' in message
    assert operator.count("post", "pods") == 1


async def failed(jobs: Jobs, reason: str) -> bool:
    condition = await jobs.condition("Failed")
    return (condition.get("status"), condition.get("reason")) == ("True", reason)
