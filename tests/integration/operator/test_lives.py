"""The life of a job on a real API server, with the kubelet played: sizes, ends of pods, suspension and clean-up."""

import asyncio
from typing import Any

import pytest

from elasticjob.operator.ports import Body
from elasticjob.operator.resources import JOBS, PODS
from tests.integration.operator.operators import Jobs, Operator, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)


def container(name: str = "worker", *, code: int | None = None, reason: str = "Error") -> Body:
    state: Body = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": reason}}
    return {"name": name, "image": "i", "imageID": "", "ready": code is None, "restartCount": 0, "state": state}


async def play(jobs: Jobs, pod: str, phase: str, *containers: Body, **status: Any) -> None:
    """What the kubelet writes into a pod."""
    patch: Body = {"status": {"phase": phase, "containerStatuses": [*containers], **status}}
    await jobs.port.patch(PODS, patch, namespace=jobs.namespace, name=pod, subresource="status")


async def change(jobs: Jobs, **spec: Any) -> None:
    await jobs.port.patch(JOBS, {"spec": spec}, namespace=jobs.namespace, name="digits")


async def uids(jobs: Jobs) -> dict[str, str]:
    """UIDs of the pods that are not being deleted, by name."""
    pods = [pod for pod in await jobs.children() if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


async def has(jobs: Jobs, *names: str) -> bool:
    return (await uids(jobs)).keys() == set(names)


async def status(jobs: Jobs) -> dict[str, Any]:
    found: dict[str, Any] = (await jobs.get()).get("status") or {}
    return found


async def is_true(jobs: Jobs, condition: str, reason: str) -> bool:
    found = await jobs.condition(condition)
    return (found.get("status"), found.get("reason")) == ("True", reason)


def names(*indexes: int) -> list[str]:
    return [f"digits-{index}-0" for index in indexes]


async def test_scaling_keeps_every_pod_that_stays(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=10, minReplicas=2, maxReplicas=12)
    await eventually(lambda: has(jobs, *names(*range(10))), what="ten pods")
    before = await uids(jobs)
    await change(jobs, replicas=9)
    await eventually(lambda: has(jobs, *names(*range(9))), what="nine pods")
    assert (await uids(jobs)).items() <= before.items()
    await change(jobs, replicas=12)
    # The index that was free is used again, under a name that was not.
    twelve = [*names(*range(9)), "digits-9-1", *names(10, 11)]
    await eventually(lambda: has(jobs, *twelve), what="twelve pods")
    kept = names(*range(9))
    assert {name: uid for name, uid in (await uids(jobs)).items() if name in kept}.items() <= before.items()
    await eventually(lambda: counts(jobs, failures=0, disruptions=0, resizes=2), what="two changes of the size")


async def counts(jobs: Jobs, **expected: int) -> bool:
    return bool((await status(jobs)).get("restarts") == expected)


SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
ENDS: tuple[tuple[str, dict[str, Any], tuple[Body, ...]], ...] = (
    ("Evicted", {"reason": "Evicted"}, ()),
    ("Terminated", {"reason": "Terminated", "message": SHUTDOWN}, ()),
    ("OOMKilled", {}, (container(code=137, reason="OOMKilled"),)),
    ("Error", {}, (container(code=143),)),
    ("DeadlineExceeded", {"reason": "DeadlineExceeded"}, ()),
    ("Error", {}, (container("proxy", code=1), container(code=255))),
)
"""Reason, status of the pod, and those of its containers."""


async def test_each_node_says_why_its_pod_ended_and_gets_another(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=6, restartPolicy={"maxRestarts": 9})
    await eventually(lambda: has(jobs, *names(*range(6))), what="six pods")
    for index, (_, pod_status, containers) in enumerate(ENDS):
        await play(jobs, f"digits-{index}-0", "Failed", *containers, **pod_status)
    await eventually(lambda: says_why(jobs), what="the reasons")
    # All of it happened before any round: one incident of either kind.
    assert (await status(jobs))["restarts"] == {"failures": 1, "disruptions": 1, "resizes": 0}


async def says_why(jobs: Jobs) -> bool:
    nodes = (await status(jobs)).get("nodes", [])
    found = {node["index"]: (node.get("lastFailure") or {}).get("reason") for node in nodes}
    wanted = {index: reason for index, (reason, *_) in enumerate(ENDS)}
    return found == wanted and len([pod for pod in await uids(jobs) if pod.endswith("-1")]) == len(ENDS)


async def test_thirty_pods_that_die_together_are_one_incident(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=32, minReplicas=30)
    await eventually(lambda: are_known(jobs, "0-31:1"), what="thirty-two pods that the operator has seen")
    before = await uids(jobs)

    async def kill(name: str) -> None:
        await jobs.port.delete(PODS, namespace=jobs.namespace, name=name, uid=before[name], grace_period=0)

    await asyncio.gather(*map(kill, names(*range(2, 32))))
    wanted = [*names(0, 1), *(f"digits-{index}-1" for index in range(2, 32))]
    await eventually(lambda: has(jobs, *wanted), what="thirty replacements")
    await eventually(lambda: counts(jobs, failures=0, disruptions=1, resizes=0), what="one incident")


async def are_known(jobs: Jobs, seen: str) -> bool:
    """Whether the operator has put down that these pods exist: of one that goes before, it knows nothing."""
    ledger = (await status(jobs)).get("ledger") or {}
    return bool(ledger.get("seen") == seen)


@pytest.mark.parametrize(
    ("code", "condition", "reason"), [(0, "Succeeded", "AllNodesSucceeded"), (1, "Failed", "MaxRestartsExceeded")]
)
async def test_the_worker_decides_although_its_sidecar_comes_first_and_never_ends(
    operator: Operator, jobs: Jobs, code: int, condition: str, reason: str
) -> None:
    containers = [{"name": "mesh-proxy", "image": "i"}, {"name": "worker", "image": "i"}]
    await jobs.create(replicas=1, restartPolicy={"maxRestarts": 0}, template={"spec": {"containers": containers}})
    await eventually(lambda: has(jobs, "digits-0-0"), what="a pod")
    await play(jobs, "digits-0-0", "Running", container("mesh-proxy"), container(code=code))
    await eventually(lambda: is_true(jobs, condition, reason), what="the result of the worker")
    await eventually(lambda: has(jobs), what="the pod is removed, since its sidecar would keep it")


async def test_a_sidecar_that_crashes_is_no_failure(operator: Operator, jobs: Jobs) -> None:
    containers = [{"name": "mesh-proxy", "image": "i"}, {"name": "worker", "image": "i"}]
    await jobs.create(replicas=2, template={"spec": {"containers": containers}})
    await eventually(lambda: has(jobs, *names(0, 1)), what="two pods")
    await play(jobs, "digits-0-0", "Running", container("mesh-proxy", code=1), container())
    await play(jobs, "digits-1-0", "Running", container("mesh-proxy"), container(code=1))
    await eventually(lambda: has(jobs, "digits-0-0", "digits-1-1"), what="the other node's worker is replaced")
    await eventually(lambda: counts(jobs, failures=1, disruptions=0, resizes=0), what="one failure")


async def test_a_job_that_is_created_suspended_starts_from_the_template_it_then_has(
    operator: Operator, jobs: Jobs
) -> None:
    await jobs.create(replicas=2, suspend=True)
    await eventually(lambda: is_true(jobs, "Suspended", "SuspendedBySpec"), what="it is suspended")
    assert (await uids(jobs), (await status(jobs)).get("startTime")) == ({}, None)
    template = {"spec": {"containers": [{"name": "worker", "image": "i"}], "nodeSelector": {"pool": "a"}}}
    await change(jobs, template=template)
    await change(jobs, suspend=False)
    await eventually(lambda: has(jobs, *names(0, 1)), what="two pods")
    assert {pod["spec"]["nodeSelector"]["pool"] for pod in await jobs.children()} == {"a"}
    await eventually(lambda: operator.count("post", "pods") == 2, what="two calls that are answered")


async def test_a_job_that_is_suspended_has_no_pods_and_counts_nothing(operator: Operator, jobs: Jobs) -> None:
    await jobs.create(replicas=3, activeDeadlineSeconds=3600)
    await eventually(lambda: has(jobs, *names(0, 1, 2)), what="three pods")
    await change(jobs, suspend=True)
    await eventually(lambda: has(jobs), what="no pods")
    await eventually(lambda: is_true(jobs, "Suspended", "SuspendedBySpec"), what="it is suspended")
    assert (await status(jobs)).get("startTime") is None
    await change(jobs, suspend=False)
    await eventually(lambda: has(jobs, "digits-0-1", "digits-1-1", "digits-2-1"), what="new pods under new names")
    await eventually(lambda: counts(jobs, failures=0, disruptions=0, resizes=0), what="nothing is counted")


@pytest.mark.parametrize(("policy", "left"), [("None", 2), ("Running", 1), ("All", 0)])
async def test_pods_of_a_failed_job_go_by_policy_and_the_job_in_its_time(
    operator: Operator, jobs: Jobs, policy: str, left: int
) -> None:
    await jobs.create(
        replicas=2,
        restartPolicy={"maxRestarts": 0},
        cleanPodPolicy=policy,
        ttlSecondsAfterFinished=3600,
        rendezvous={"closeTimeoutSeconds": 0},
    )
    await eventually(lambda: has(jobs, *names(0, 1)), what="two pods")
    await play(jobs, "digits-0-0", "Running", container())
    await play(jobs, "digits-1-0", "Failed", container(code=1))
    await eventually(lambda: is_true(jobs, "Failed", "MaxRestartsExceeded"), what="the job has failed")
    assert (await status(jobs))["completionTime"]
    await eventually(lambda: has(jobs, *names(1, 0)[:left]), what="pods go by policy")
    await change(jobs, ttlSecondsAfterFinished=1)
    await eventually(jobs.is_gone, what="the job is deleted")
