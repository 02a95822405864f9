"""The order of a reconcile: what is stored, ordered, done and told, and what follows from a refusal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from elasticjob.operator.actions import CreatePod, EventFact, Plan
from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import LABEL_JOB_NAME, LABEL_JOB_UID
from elasticjob.operator.errors import (
    Conflict,
    Forbidden,
    NotFound,
    NotLeader,
    Starting,
    TooManyRequests,
    Unavailable,
)
from elasticjob.operator.mirror.mirror import EventMirror
from elasticjob.operator.observed import Observed
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.ports import Body
from elasticjob.operator.reconcile import Reconciler, Result
from elasticjob.operator.resources import JOBS, PODS
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders
from tests.unit.operator.fakes import Call, FakeClock, FakeHost, ScriptedCluster, Sink

KEY = JobKey("team", "digits")
FACTS = OperatorFacts(image="i", endpoint=ServerEndpoint(host="h", port=1))
POD = CreatePod(index=0, attempt=0, body={"metadata": {"name": "digits-0-0"}})
EVENT = EventFact(type="Warning", reason="JobFailed", message="it failed", pod="digits-0-0", pod_uid="pod-uid")


def job(version: int = 1, uid: str = "job-uid", **status: Any) -> Body:
    meta = {"namespace": "team", "name": "digits", "uid": uid, "resourceVersion": str(version), "generation": 1}
    template = {"spec": {"containers": [{"name": "worker"}]}}
    return {"metadata": meta, "spec": {"replicas": 1, "template": template}, "status": status}


def orders(run_id: str = "job-uid") -> RunOrders:
    return RunOrders(
        run_id=run_id,
        namespace="team",
        job="digits",
        min_nodes=1,
        max_nodes=1,
        expected=frozenset({0}),
        nodes={},
    )


def pod(uid: str, owner: str = "job-uid") -> Body:
    return {
        "metadata": {
            "namespace": "team",
            "name": f"digits-{uid}",
            "uid": uid,
            "resourceVersion": "7",
            "labels": {LABEL_JOB_NAME: "digits", LABEL_JOB_UID: "job-uid"},
            "ownerReferences": [{"uid": owner, "controller": True}],
        }
    }


@dataclass
class World:
    """A reconciler and everything around it."""

    plan: Plan = field(default_factory=Plan)
    cluster: ScriptedCluster = field(default_factory=ScriptedCluster)
    cache: Cache = field(default_factory=Cache)
    host: FakeHost = field(default_factory=FakeHost)
    sink: Sink = field(default_factory=Sink)
    clock: FakeClock = field(default_factory=FakeClock)
    observed: list[Observed] = field(default_factory=list)
    trouble: Exception | None = None

    def __post_init__(self) -> None:
        self.version = 100
        self.cluster.answer = self.accept
        self.reconciler = Reconciler(
            cluster=self.cluster,
            cache=self.cache,
            host=self.host,
            events=self.sink,
            mirror=EventMirror(clock=self.clock),
            clock=self.clock,
            facts=lambda: FACTS,
            planner=self._plan,
            parallelism=4,
            status_interval=1.0,
        )

    def _plan(self, observed: Observed) -> Plan:
        self.observed.append(observed)
        if self.trouble is not None:
            raise self.trouble
        return self.plan

    def accept(self, call: Call) -> Body:
        """An API server that stores everything."""
        self.version += 1
        if call.resource == PODS:
            return pod(f"uid-{call.name}")
        body = dict(call.body or job())
        return body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}

    def refuse(self, error: Exception, *, when: Callable[[Call], bool]) -> None:
        def answer(call: Call) -> Body:
            if when(call):
                raise error
            return self.accept(call)

        self.cluster.answer = answer

    async def reconcile(self) -> Result:
        return await self.reconciler.reconcile(KEY)

    def did(self) -> list[tuple[str, str]]:
        return [(call.verb, call.resource.plural) for call in self.cluster.calls if call.resource]


@pytest.fixture
def world() -> World:
    world = World()
    world.cache.see(JOBS, job())
    return world


def is_status(call: Call) -> bool:
    return call.verb == "replace"


async def test_a_plan_that_wants_nothing_writes_nothing(world: World) -> None:
    assert await world.reconcile() == Result()
    assert world.cluster.calls == []


async def test_the_plan_sees_only_pods_that_the_job_controls(world: World) -> None:
    world.cache.see(PODS, pod("mine"))
    world.cache.see(PODS, pod("foreign", owner="somebody-else"))
    await world.reconcile()
    assert [one["metadata"]["uid"] for one in world.observed[0].pods] == ["mine"]


async def test_actions_come_before_the_status_unless_it_is_to_be_stored_first(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"}, actions=(POD,))
    await world.reconcile()
    assert world.did() == [("create", "pods"), ("replace", "elasticjobs")]


async def test_what_is_charged_first_is_stored_before_anything_is_done(world: World) -> None:
    world.plan = Plan(charge_first=True, status={"phase": "Pending"}, actions=(POD,), orders=orders())
    await world.reconcile()
    assert world.did() == [("replace", "elasticjobs"), ("create", "pods")]


@pytest.mark.parametrize("error", [Conflict("changed", status=409), Unavailable("gone"), NotLeader("lost")])
async def test_nothing_is_done_when_the_charge_cannot_be_stored(world: World, error: Exception) -> None:
    world.plan = Plan(charge_first=True, status={"phase": "Failed"}, actions=(POD,), orders=orders(), events=(EVENT,))
    world.refuse(error, when=is_status)
    if isinstance(error, NotLeader):
        with pytest.raises(NotLeader):
            await world.reconcile()
    else:
        await world.reconcile()
    assert ("create", "pods") not in world.did()
    assert world.host.orders == {}
    assert world.sink.emitted == []


def with_pods(orders: RunOrders, **phases: NodePhase) -> RunOrders:
    nodes = {
        uid: NodeFacts(pod_uid=uid, pod=f"digits-{index}-0", index=index, phase=phase)
        for index, (uid, phase) in enumerate(phases.items())
    }
    return replace(orders, nodes=nodes)


ALL_WELL = with_pods(orders(), a=NodePhase.ALIVE, b=NodePhase.ALIVE, c=NodePhase.ALIVE)


@pytest.mark.parametrize("error", [Conflict("changed", status=409), Unavailable("gone")])
async def test_survivors_hear_of_lost_pods_although_they_cannot_be_counted(world: World, error: Exception) -> None:
    world.plan = Plan(orders=ALL_WELL)
    await world.reconcile()
    now = with_pods(orders(), a=NodePhase.ALIVE, b=NodePhase.FAILED)
    world.plan = Plan(charge_first=True, status={"phase": "Running"}, orders=replace(now, expected=frozenset({5})))
    world.refuse(error, when=is_status)
    await world.reconcile()
    assert world.host.orders["job-uid"] == replace(ALL_WELL, nodes=now.nodes), "what was decided is not told"


async def test_who_leaves_is_told_once_that_is_stored(world: World) -> None:
    world.plan = Plan(orders=ALL_WELL)
    await world.reconcile()
    now = with_pods(orders(), a=NodePhase.ALIVE, b=NodePhase.ALIVE, c=NodePhase.DRAINING)
    world.plan = Plan(charge_first=True, status={"phase": "Running"}, orders=now)
    world.refuse(Unavailable("gone"), when=is_status)
    await world.reconcile()
    assert world.host.orders["job-uid"] == ALL_WELL
    world.cluster.answer = world.accept
    await world.reconcile()
    assert world.host.orders["job-uid"] == now


async def test_a_run_is_closed_once_the_verdict_is_stored_and_left_in_peace_until_then(world: World) -> None:
    world.plan = Plan(orders=ALL_WELL)
    await world.reconcile()
    over = replace(with_pods(orders(), a=NodePhase.FAILED), close=CloseReason.FAILED, close_message="too many failures")
    world.plan = Plan(charge_first=True, status={"phase": "Failed"}, orders=over)
    world.refuse(Unavailable("gone"), when=is_status)
    await world.reconcile()
    assert world.host.orders["job-uid"] == ALL_WELL
    world.cluster.answer = world.accept
    await world.reconcile()
    assert world.host.orders["job-uid"] == over


async def test_the_run_of_a_successor_is_not_told_of_before_its_own_orders(world: World) -> None:
    world.plan = Plan(orders=orders())
    await world.reconcile()
    world.cache.see(JOBS, job(uid="second"))
    world.plan = Plan(
        charge_first=True, status={"phase": "Pending"}, orders=with_pods(orders("second"), a=NodePhase.FAILED)
    )
    world.refuse(Unavailable("gone"), when=is_status)
    await world.reconcile()
    assert "second" not in world.host.orders


async def test_a_status_is_written_on_the_version_that_the_plan_saw(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    await world.reconcile()
    (write,) = world.cluster.made("replace", JOBS)
    assert write.body is not None
    assert write.body["metadata"]["resourceVersion"] == "1"
    assert write.body["status"] == {"phase": "Pending"}


async def test_the_stored_status_is_known_at_once(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    await world.reconcile()
    world.plan = Plan()
    await world.reconcile()
    assert world.observed[1].job.stored_status == {"phase": "Pending"}


async def test_after_a_conflict_the_job_is_read_again_and_planned_anew(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    world.refuse(Conflict("changed", status=409), when=is_status)
    result = await world.reconcile()
    assert result == Result(again=True)
    assert world.did() == [("replace", "elasticjobs"), ("get", "elasticjobs")]
    await world.reconcile()
    assert world.observed[1].job.resource_version == "101"


async def test_a_job_that_is_gone_when_its_status_is_written_is_left(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    world.refuse(NotFound("no such job", status=404), when=is_status)
    assert await world.reconcile() == Result()


async def test_events_are_told_after_the_status_was_stored(world: World) -> None:
    world.plan = Plan(status={"phase": "Failed"}, events=(EVENT,))
    await world.reconcile()
    (told,) = world.sink.emitted
    assert (told.reason, told.note, told.warning) == ("JobFailed", "it failed", True)
    assert told.regarding.uid == "job-uid"
    assert told.related is not None
    assert told.related.uid == "pod-uid"


async def test_a_second_status_within_a_second_waits_for_its_turn(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    await world.reconcile()
    world.clock.advance(0.25)
    world.plan = Plan(status={"phase": "Running"}, events=(EVENT,), requeue_after=30)
    assert await world.reconcile() == Result(after=0.75)
    assert len(world.cluster.made("replace", JOBS)) == 1
    assert world.sink.emitted == []
    world.clock.advance(0.75)
    assert await world.reconcile() == Result(after=30)
    assert len(world.cluster.made("replace", JOBS)) == 2


async def test_a_charge_does_not_wait_for_its_turn(world: World) -> None:
    world.plan = Plan(status={"phase": "Pending"})
    await world.reconcile()
    world.plan = Plan(charge_first=True, status={"phase": "Failed"})
    await world.reconcile()
    assert len(world.cluster.made("replace", JOBS)) == 2


async def test_a_refused_pod_is_planned_again_at_once_with_the_words_of_the_api(world: World) -> None:
    world.plan = Plan(actions=(POD,))
    world.refuse(Forbidden("exceeded quota", status=403), when=lambda call: call.verb == "create")
    result = await world.reconcile()
    assert result.again
    assert result.failed
    second = await world.reconcile()
    assert not second.again
    (problem,) = world.observed[1].problems
    assert (problem.target, problem.message) == ("Pod/digits-0-0", "exceeded quota")


@pytest.mark.parametrize(
    ("trouble", "level"),
    [(Starting("the certificates are not made yet"), "INFO"), (Unavailable("no route to host"), "WARNING")],
)
async def test_what_is_normal_at_the_start_is_no_warning(
    world: World, trouble: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.trouble = trouble
    with caplog.at_level("INFO", logger="elasticjob"):
        assert (await world.reconcile()).failed
    assert [record.levelname for record in caplog.records] == [level]


async def test_a_server_that_asks_to_slow_down_is_obeyed(world: World) -> None:
    world.plan = Plan(actions=(POD,))
    world.refuse(TooManyRequests("slow down", retry_after=7), when=lambda call: call.verb == "create")
    assert (await world.reconcile()).at_least == 7


async def test_orders_reach_the_rendezvous(world: World) -> None:
    world.plan = Plan(orders=orders())
    await world.reconcile()
    assert list(world.host.orders) == ["job-uid"]


async def test_a_job_without_orders_is_not_hosted(world: World) -> None:
    await world.reconcile()
    assert world.host.forgotten == ["job-uid"]


async def test_the_run_of_a_deleted_job_is_erased(world: World) -> None:
    world.plan = Plan(orders=orders())
    await world.reconcile()
    world.cache.see(JOBS, job(5), deleted=True)
    assert await world.reconcile() == Result()
    assert world.host.erased == ["job-uid"]
    await world.reconcile()
    assert world.host.erased == ["job-uid"]


async def test_the_run_of_a_deleted_job_that_never_ran_here_is_erased_as_well(world: World) -> None:
    await world.reconcile()
    world.cache.see(JOBS, job(5), deleted=True)
    await world.reconcile()
    assert world.host.erased == ["job-uid"]


async def test_nothing_of_another_controllers_job_is_erased(world: World) -> None:
    theirs = job(5)
    theirs["spec"]["managedBy"] = "acme.io/controller"
    world.cache.see(JOBS, theirs)
    await world.reconcile()
    world.cache.see(JOBS, job(6), deleted=True)
    await world.reconcile()
    assert world.host.erased == []


async def test_a_job_created_anew_under_the_name_is_another_run(world: World) -> None:
    world.plan = Plan(orders=orders())
    await world.reconcile()
    world.cache.see(JOBS, job(9, uid="successor"))
    world.plan = Plan(orders=orders("successor"))
    await world.reconcile()
    assert world.host.erased == ["job-uid"]
    assert list(world.host.orders) == ["successor"]
