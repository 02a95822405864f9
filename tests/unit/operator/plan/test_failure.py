"""Pods that end: counting, replacing, giving up."""

from typing import Any

import pytest

from elasticjob.operator.plan import CreatePod, DeletePod
from elasticjob.rendezvous.orders import CloseReason, NodePhase, RunState
from tests.unit.operator.world import CrashError, World, running

DISRUPTION = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


def fail(world: World, index: int, code: int = 1, **status: Any) -> None:
    world.exit(index, code, **status)
    world.settle()
    world.later(60)
    world.settle()


def test_a_failed_node_is_replaced_under_a_new_name() -> None:
    world = running(2)
    world.exit(1, 7)
    plan = world.step()
    assert plan.charge_first
    assert [type(action) for action in plan.actions] == [DeletePod, CreatePod]
    assert world.names() == ["digits-0-0", "digits-1-1"]
    assert world.status["restarts"] == {"failures": 1, "disruptions": 0, "resizes": 0}
    assert world.entry(1)["lastFailure"] == {"pod": "digits-1-0", "reason": "Error", "exitCode": 7}


def test_survivors_are_told_at_once_that_the_pod_is_dead() -> None:
    world = running(2)
    world.exit(1, 7)
    orders = world.plan().orders
    assert orders is not None
    facts = {node.pod: node for node in orders.nodes.values()}
    assert facts["digits-1-0"].phase is NodePhase.FAILED
    assert orders.expected == {0, 1}
    assert orders.max_worker_failures == 2


def test_out_of_memory_shows_reason_and_exit_code_on_the_node() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    world.exit(1, 137, why="OOMKilled")
    world.settle()
    node = world.entry(1)
    assert (node["state"], node["reason"], node["exitCode"]) == ("FAILED", "OOMKilled", 137)


@pytest.mark.parametrize("code", [1, 143, 255])
def test_the_failure_after_the_budget_ends_the_job(code: int) -> None:
    world = running(2, restartPolicy={"maxRestarts": 3})
    for number in range(1, 4):
        fail(world, 1, code)
        assert world.status["restarts"]["failures"] == number
        assert world.condition("Failed")["status"] == "False"
        world.run(1)
        world.form(0, 1)
        world.settle()
    fail(world, 1, code)
    failed = world.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", "MaxRestartsExceeded")
    assert failed["message"].startswith("4 failures exceed restartPolicy.maxRestarts (3); last: digits-1 ended with")
    assert world.status["phase"] == "Failed"
    assert world.status["completionTime"]
    assert world.condition("Stalled")["status"] == "True"
    assert "digits-1-4" not in world.created


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory.", "containerStatuses": []},
        {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
        {"reason": "NodeShutdown"},
        {"reason": "OutOfcpu", "containerStatuses": []},
        DISRUPTION,
    ],
)
def test_what_the_infrastructure_does_uses_no_budget(status: dict[str, Any]) -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    for attempt in range(1, 6):
        world.exit(1, 137, **status)
        world.settle()
        assert f"digits-1-{attempt}" in world.names()
        world.run(1)
        world.form(0, 1)
        world.settle()
    assert world.status["restarts"] == {"failures": 0, "disruptions": 5, "resizes": 0}
    assert world.status["phase"] == "Running"


def test_a_deleted_pod_is_replaced_while_it_still_terminates_and_counts_as_a_disruption() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    world.mark_deleted(1)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-1-1"]
    orders = world.plan().orders
    assert orders is not None
    assert {node.pod: node.phase for node in orders.nodes.values()} == {
        "digits-0-0": NodePhase.ALIVE,
        "digits-1-0": NodePhase.DRAINING,
        "digits-1-1": NodePhase.ALIVE,
    }
    assert world.status["restarts"]["disruptions"] == 1


def test_the_exit_code_of_a_deleted_pod_is_not_a_failure() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    world.mark_deleted(1)
    world.settle()
    old = world.pods["digits-1-0"]
    old["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 137}}}],
    }
    world.settle()
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}


def test_a_pod_that_is_gone_without_a_trace_is_counted_once_and_replaced() -> None:
    world = running(2)
    world.vanish(1)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-1"]
    assert world.status["restarts"]["disruptions"] == 1
    assert world.entry(1)["lastFailure"]["reason"] == "PodGone"


def test_a_pod_that_was_never_seen_is_created_again_under_its_name() -> None:
    world = World()
    world.step()
    world.pods.clear()
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0"]
    assert world.status["restarts"]["disruptions"] == 0


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("second", range(4))
def test_a_failure_is_counted_once_wherever_the_operator_dies(first: int, second: int) -> None:
    world = running(2)
    world.exit(1, 1)
    for writes in (first, second):
        try:
            world.step(crash_after=writes)
        except CrashError:
            continue
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-1"]
    assert world.status["restarts"]["failures"] == 1


def test_pods_that_fail_in_one_round_are_one_incident() -> None:
    world = running(8, minReplicas=2, restartPolicy={"maxRestarts": 1})
    world.exit(1, 1)
    world.exit(2, 1)
    world.settle()
    world.exit(3, 1)
    world.settle()
    assert world.status["restarts"]["failures"] == 1
    assert len(world.pods) == 8


def test_a_node_that_never_joins_is_counted_each_time() -> None:
    world = World(restartPolicy={"maxRestarts": 2})
    world.settle()
    for _ in range(3):
        fail(world, 0)
    assert world.condition("Failed")["reason"] == "MaxRestartsExceeded"
    assert world.status["restarts"]["failures"] == 3


def test_a_crash_loop_is_slowed_down() -> None:
    world = World(restartPolicy={"maxRestarts": 100})
    world.settle()
    pauses = []
    for _ in range(10):
        world.exit(0, 1)
        plan = world.settle()
        pauses.append(plan.requeue_after or 0.0)
        world.later(plan.requeue_after or 0.0)
        world.settle()
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_failures_in_place_and_failed_pods_share_the_budget() -> None:
    world = running(2, restartPolicy={"maxRestarts": 2})
    world.form(0, 1, worker_failures=2)
    world.settle()
    assert world.status["restarts"]["failures"] == 2
    assert world.condition("Failed")["status"] == "False"
    fail(world, 0)
    assert world.condition("Failed")["reason"] == "MaxRestartsExceeded"


def test_failures_in_place_are_remembered_while_the_run_is_not_served() -> None:
    world = running(2)
    world.form(0, 1, worker_failures=2)
    world.settle()
    world.view = None
    world.settle()
    assert world.status["restarts"]["failures"] == 2


def test_kubelet_restarts_count_and_their_pod_is_not_counted_again() -> None:
    world = running(2, template={"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "worker"}]}})
    world.pod(0)["status"]["containerStatuses"] = [
        {"name": "worker", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]
    world.settle()
    assert world.status["restarts"]["failures"] == 1
    assert world.names() == ["digits-0-0", "digits-1-0"]
    world.later(60)
    world.settle()
    assert world.status["restarts"]["failures"] == 1


def test_a_restart_time_out_of_the_rendezvous_ends_the_job() -> None:
    world = running(2)
    world.wait(state=RunState.WAITING, failed="only 1 of min 2 nodes joined within 600 s")
    plan = world.step()
    assert plan.orders is not None
    assert plan.orders.close is CloseReason.FAILED
    assert world.condition("Failed")["reason"] == "RendezvousFailed"
    assert world.condition("Failed")["message"] == "only 1 of min 2 nodes joined within 600 s"


def test_a_budget_that_workers_spent_in_place_ends_the_job_for_the_reason_that_pods_have() -> None:
    world = running(2, restartPolicy={"maxRestarts": 2})
    cause = "the workers of digits-1 failed with exit code 7"
    world.wait(0, 1, worker_failures=3, cause=cause, failed=f"{cause}; workers may fail 2 times")
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "MaxRestartsExceeded"
    assert failed["message"] == f"3 failures exceed restartPolicy.maxRestarts (2); last: {cause}"
    assert world.status["restarts"]["failures"] == 3


def test_an_event_names_the_pod_that_failed() -> None:
    world = running(2)
    world.exit(1, 7, message="ValueError: no data")
    world.settle()
    told = next(event for event in world.events if event.reason == "NodeFailed")
    assert (told.type, told.pod, told.pod_uid) == ("Warning", "digits-1-0", "pod-2")
    assert told.message == "digits-1 failed (Error, exit code 7): ValueError: no data"


def test_many_failures_at_once_are_one_event() -> None:
    world = running(32, minReplicas=2)
    for index in range(2, 32):
        world.vanish(index)
    world.settle()
    assert world.reasons().count("NodeDisrupted") == 1
    assert world.status["restarts"]["disruptions"] == 1
    assert len(world.pods) == 32
