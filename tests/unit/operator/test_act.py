import asyncio
from typing import Any

import pytest

from elasticjob.operator.act import Actor, Owner
from elasticjob.operator.actions import (
    CreateDisruptionBudget,
    CreatePod,
    CreateService,
    DeleteDisruptionBudget,
    DeleteJob,
    DeletePod,
    UpdateDisruptionBudget,
)
from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import LABEL_JOB_NAME, LABEL_JOB_UID
from elasticjob.operator.errors import AlreadyExists, Conflict, Forbidden, NotFound, NotLeader
from elasticjob.operator.ports import Body
from elasticjob.operator.problems import Problems
from elasticjob.operator.resources import DISRUPTION_BUDGETS, JOBS, PODS, SERVICES
from tests.unit.operator.fakes import Call, FakeClock, ScriptedCluster

OWNER = Owner(key=JobKey("team", "digits"), uid="job-uid")


def child(name: str, uid: str, *, owner: str = "job-uid", version: int = 50) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {LABEL_JOB_NAME: "digits", LABEL_JOB_UID: "job-uid"},
            "ownerReferences": [{"uid": owner, "controller": True}],
        }
    }


def create_pod(index: int) -> CreatePod:
    return CreatePod(index=index, attempt=0, body={"metadata": {"name": f"digits-{index}-0"}})


def stored(call: Call) -> Body:
    """An API server that accepts everything."""
    return child(call.name, f"uid-{call.name}")


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster(answer=stored)


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    see_job(cache, version=1)
    return cache


def see_job(cache: Cache, *, version: int, **more: str) -> None:
    meta = {"namespace": "team", "name": "digits", "uid": "job-uid", "resourceVersion": str(version)}
    cache.see(JOBS, {"metadata": meta | more})


@pytest.fixture
def problems() -> Problems:
    return Problems()


@pytest.fixture
def actor(cluster: ScriptedCluster, cache: Cache, problems: Problems) -> Actor:
    return Actor(cluster=cluster, cache=cache, problems=problems, clock=FakeClock(), parallelism=4)


async def test_what_was_created_is_in_the_cache_at_once(actor: Actor, cache: Cache) -> None:
    report = await actor.act(OWNER, [CreateService(body={"metadata": {"name": "digits"}}), create_pod(0)])
    assert report.failures == []
    assert len(cache.children(PODS, "job-uid")) == 1
    assert len(cache.children(SERVICES, "job-uid")) == 1
    # The watch will tell of them too, but nothing that is new by then.
    assert report.news


async def test_actions_keep_the_order_of_the_plan(actor: Actor, cluster: ScriptedCluster) -> None:
    service = CreateService(body={"metadata": {"name": "digits"}})
    await actor.act(OWNER, [service, create_pod(0), DeletePod(name="digits-9-0", uid="x", reason="scaled")])
    assert [(call.verb, call.name) for call in cluster.calls] == [
        ("create", "digits"),
        ("create", "digits-0-0"),
        ("delete", "digits-9-0"),
    ]


async def test_the_first_refusal_ends_the_creations(actor: Actor, cluster: ScriptedCluster) -> None:
    def answer(call: Call) -> Body:
        raise Forbidden("exceeded quota", status=403)

    cluster.answer = answer
    report = await actor.act(OWNER, [create_pod(index) for index in range(200)])
    assert len(cluster.calls) == 1
    assert report.news
    assert [str(error) for error in report.failures] == ["exceeded quota"]


async def test_many_are_created_side_by_side_and_each_once(actor: Actor, cluster: ScriptedCluster) -> None:
    under_way, most = 0, 0

    async def create(resource: object, body: Body, **where: object) -> Body:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await ScriptedCluster.create(cluster, PODS, body, namespace="team")

    cluster.create = create  # type: ignore[method-assign]
    report = await actor.act(OWNER, [create_pod(index) for index in range(50)])
    assert sorted(call.name for call in cluster.calls) == sorted(f"digits-{index}-0" for index in range(50))
    assert (most, report.failures) == (4, [])


async def test_a_slow_call_holds_up_no_other(actor: Actor, cluster: ScriptedCluster) -> None:
    answered = asyncio.Event()

    async def create(resource: object, body: Body, **where: object) -> Body:
        if body["metadata"]["name"] == "digits-10-0":
            await answered.wait()
        return await ScriptedCluster.create(cluster, PODS, body, namespace="team")

    cluster.create = create  # type: ignore[method-assign]
    acting = asyncio.create_task(actor.act(OWNER, [create_pod(index) for index in range(50)]))
    while len(cluster.calls) < 49:  # noqa: ASYNC110 - the answers are counted
        await asyncio.sleep(0)
    answered.set()
    await acting
    assert len(cluster.calls) == 50


async def test_a_refusal_is_remembered_until_the_call_succeeds(
    actor: Actor, cluster: ScriptedCluster, problems: Problems
) -> None:
    def refuse(call: Call) -> Body:
        raise Forbidden("exceeded quota", status=403)

    cluster.answer = refuse
    await actor.act(OWNER, [create_pod(0)])
    (problem,) = problems.of(OWNER.key, now=0)
    assert (problem.target, problem.message) == ("Pod/digits-0-0", "exceeded quota")
    assert not (await actor.act(OWNER, [create_pod(0)])).news
    cluster.answer = stored
    assert (await actor.act(OWNER, [create_pod(0)])).news
    assert problems.of(OWNER.key, now=0) == ()


async def test_an_existing_pod_of_the_job_is_the_wanted_one(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "create":
            raise AlreadyExists("exists", status=409)
        return stored(call)

    cluster.answer = answer
    report = await actor.act(OWNER, [create_pod(0)])
    assert report.failures == []
    assert list(cache.children(PODS, "job-uid")) == ["uid-digits-0-0"]


async def test_an_existing_pod_of_somebody_else_is_a_problem(
    actor: Actor, cluster: ScriptedCluster, cache: Cache, problems: Problems
) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "create":
            raise AlreadyExists("exists", status=409)
        return child(call.name, "foreign", owner="somebody-else")

    cluster.answer = answer
    await actor.act(OWNER, [create_pod(0)])
    (problem,) = problems.of(OWNER.key, now=0)
    assert problem.message == 'pods "digits-0-0" already exists and is not controlled by this job'
    assert cache.count(PODS) == 0


async def test_what_a_deleted_job_of_the_name_has_left_is_waited_for(
    actor: Actor, cluster: ScriptedCluster, problems: Problems
) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "create":
            raise AlreadyExists("exists", status=409)
        left = child(call.name, "old", owner="former-uid")
        left["metadata"]["ownerReferences"][0] |= {"kind": "ElasticJob", "name": "digits"}
        return left

    cluster.answer = answer
    await actor.act(OWNER, [CreateService(body={"metadata": {"name": "digits"}})])
    (problem,) = problems.of(OWNER.key, now=0)
    assert problem.passes
    assert problem.message == "Waits for Service digits of the deleted job of the same name to be removed"


async def test_a_name_that_has_just_become_free_is_taken_at_once(
    actor: Actor, cluster: ScriptedCluster, cache: Cache, problems: Problems
) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "get":
            raise NotFound("no such Service", status=404)
        if len(cluster.made("create", SERVICES)) == 1:
            raise AlreadyExists("exists", status=409)
        return stored(call)

    cluster.answer = answer
    report = await actor.act(OWNER, [CreateService(body={"metadata": {"name": "digits"}})])
    assert report.failures == []
    assert problems.of(OWNER.key, now=0) == ()
    assert list(cache.children(SERVICES, "job-uid")) == ["uid-digits"]


async def test_nothing_is_created_once_the_deletion_is_known(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    def answer(call: Call) -> Body:
        see_job(cache, version=2, deletionTimestamp="2026-05-01T12:00:00Z")
        return stored(call)

    cluster.answer = answer
    await actor.act(OWNER, [create_pod(index) for index in range(10)])
    assert len(cluster.calls) == 1


async def test_nothing_is_created_for_a_job_that_was_replaced(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    see_job(cache, version=2, uid="successor")
    await actor.act(OWNER, [create_pod(0)])
    assert cluster.calls == []


@pytest.mark.parametrize("gone", [NotFound("no such pod", status=404), Conflict("another uid", status=409)])
async def test_deleting_what_is_gone_is_no_failure(
    actor: Actor, cluster: ScriptedCluster, cache: Cache, gone: Exception
) -> None:
    def answer(call: Call) -> Body:
        raise gone

    cache.see(PODS, child("digits-0-0", "uid-0", version=10))
    cluster.answer = answer
    report = await actor.act(OWNER, [DeletePod(name="digits-0-0", uid="uid-0", reason="scaled")])
    assert report.failures == []
    assert cache.count(PODS) == 0


async def test_a_pod_that_is_being_deleted_is_known_as_such_at_once(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    leaving = child("digits-0-0", "uid-0", version=11) | {"kind": "Pod"}
    leaving["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    cache.see(PODS, child("digits-0-0", "uid-0", version=10))
    cluster.answer = lambda call: leaving
    await actor.act(OWNER, [DeletePod(name="digits-0-0", uid="uid-0", reason="scaled")])
    assert cache.children(PODS, "job-uid")["uid-0"]["metadata"]["deletionTimestamp"]


async def test_a_job_whose_time_is_over_is_deleted_by_its_uid(actor: Actor, cluster: ScriptedCluster) -> None:
    await actor.act(OWNER, [DeleteJob(name="digits", uid="job-uid")])
    assert cluster.calls == [Call("delete", JOBS, "digits", {"uid": "job-uid"})]


async def test_who_does_not_lead_stops_at_once(actor: Actor, cluster: ScriptedCluster) -> None:
    def answer(call: Call) -> Body:
        raise NotLeader("not the leader")

    cluster.answer = answer
    with pytest.raises(NotLeader):
        await actor.act(OWNER, [create_pod(0), DeletePod(name="a", uid="b", reason="c")])
    assert len(cluster.calls) == 1


async def test_creations_run_side_by_side_within_the_limit(cache: Cache, problems: Problems) -> None:
    class SlowCluster(ScriptedCluster):
        running = 0
        most = 0

        async def create(
            self, resource: Any, body: Body, *, namespace: str | None, timeout: float | None = None
        ) -> Body:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return stored(Call("create", resource, body["metadata"]["name"]))

    cluster = SlowCluster()
    actor = Actor(cluster=cluster, cache=cache, problems=problems, clock=FakeClock(), parallelism=4)
    await actor.act(OWNER, [create_pod(index) for index in range(20)])
    assert cluster.most == 4
    assert cache.count(PODS) == 20


async def test_the_disruption_budget_is_created_changed_and_deleted(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    def least() -> list[int]:
        return [one["spec"]["minAvailable"] for one in cache.children(DISRUPTION_BUDGETS, "job-uid").values()]

    def answer(call: Call) -> Body:
        version = 50 + len(cluster.calls)
        spec = dict((call.body or {}).get("spec") or {})
        return {**child("digits", "budget-uid", version=version), "spec": spec}

    cluster.answer = answer
    body = {"metadata": {"name": "digits"}, "spec": {"minAvailable": 1}}
    await actor.act(OWNER, [CreateDisruptionBudget(body=body)])
    assert least() == [1]
    await actor.act(OWNER, [UpdateDisruptionBudget(body={**body, "spec": {"minAvailable": 2}})])
    assert least() == [2]
    await actor.act(OWNER, [DeleteDisruptionBudget(name="digits", uid="budget-uid")])
    assert least() == []
    assert [call.verb for call in cluster.calls] == ["create", "replace", "delete"]


async def test_a_disruption_budget_that_was_changed_meanwhile_is_read_again_and_not_overwritten(
    actor: Actor, cluster: ScriptedCluster, cache: Cache
) -> None:
    def answer(call: Call) -> Body:
        if call.verb == "replace":
            raise Conflict("the object has been modified", status=409)
        return child("digits", "budget-uid", version=77)

    cluster.answer = answer
    report = await actor.act(OWNER, [UpdateDisruptionBudget(body={"metadata": {"name": "digits"}})])
    assert report.failures == []
    assert report.news
    found = cache.children(DISRUPTION_BUDGETS, "job-uid")["budget-uid"]
    assert found["metadata"]["resourceVersion"] == "77"
