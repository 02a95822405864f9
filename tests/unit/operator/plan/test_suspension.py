"""Suspending and resuming."""

import pytest

from elasticjob.operator.plan import CreatePod
from elasticjob.rendezvous.orders import NodePhase, RunState
from tests.unit.operator.world import World, running, template


def test_a_job_that_is_created_suspended_gets_nothing_until_it_is_resumed() -> None:
    world = World(suspend=True)
    world.settle()
    assert world.pods == {}
    assert not world.service
    assert world.status["phase"] == "Suspended"
    assert "startTime" not in world.status
    assert world.plan().orders is None
    world.spec(suspend=False, template=template(nodeSelector={"disk": "ssd"}))
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0"]
    assert all(pod["spec"]["nodeSelector"] == {"disk": "ssd"} for pod in world.pods.values())
    assert "JobResumed" in world.reasons()


def test_suspending_removes_all_pods_politely_and_counts_nothing() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    world.spec(suspend=True)
    plan = world.step()
    assert plan.charge_first
    assert plan.orders is not None
    assert plan.orders.close is None
    assert plan.orders.expected == frozenset()
    assert {node.phase for node in plan.orders.nodes.values()} == {NodePhase.DRAINING}
    world.exit(0, 1)
    world.exit(1, 143)
    world.settle()
    world.pods.clear()
    world.settle()
    assert world.status["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 0}
    assert world.condition("Suspended")["status"] == "True"
    assert world.condition("Ready")["status"] == "False"
    assert world.status["replicas"] == 0
    assert world.status["size"] == "0/2"
    assert world.plan().orders is None


def test_resuming_starts_all_nodes_under_new_names() -> None:
    world = running(2)
    world.spec(suspend=True)
    world.settle()
    world.pods.clear()
    world.settle()
    world.spec(suspend=False)
    world.settle()
    assert world.names() == ["digits-0-1", "digits-1-1"]
    assert world.condition("Suspended")["status"] == "False"
    assert world.status["startTime"]


def test_a_resumed_job_begins_anew_and_does_not_re_form() -> None:
    world = running(2)
    world.spec(suspend=True)
    world.settle()
    world.pods.clear()
    world.settle()
    world.spec(suspend=False)
    world.settle()
    world.wait(0, state=RunState.REFORMING, participants=())  # the coordinator knows the round before the suspension
    world.settle()
    assert (world.status["phase"], world.status["rendezvous"]["state"]) == ("Forming", "Waiting")
    world.form(0, 1)
    world.settle()
    world.wait(state=RunState.REFORMING)
    world.settle()
    assert (world.status["phase"], world.status["rendezvous"]["state"]) == ("Reforming", "Reforming")


def test_a_pod_that_was_created_as_the_job_was_suspended_goes_as_well() -> None:
    world = World()
    world.settle()
    late = world.pods.pop("digits-1-0")
    world.spec(suspend=True)
    world.settle()
    world.pods["digits-1-0"] = late
    world.settle()
    assert world.pods == {}
    assert world.status["restarts"]["disruptions"] == 0


def test_old_pods_that_still_terminate_are_no_members_after_resuming() -> None:
    world = running(2)
    world.spec(suspend=True)
    world.settle()
    world.spec(suspend=False)
    world.settle()
    orders = world.plan().orders
    assert orders is not None
    phases = {node.pod: node.phase for node in orders.nodes.values()}
    assert phases["digits-0-0"] is NodePhase.DRAINING
    assert phases["digits-0-1"] is NodePhase.ALIVE


def test_rounds_before_the_suspension_say_nothing_about_the_time_after() -> None:
    world = running(2, startupDeadlineSeconds=60)
    world.spec(suspend=True)
    world.settle()
    world.pods.clear()
    world.spec(suspend=False)
    world.settle()
    assert world.condition("Ready")["status"] == "False"
    assert world.status["phase"] in ("Pending", "Forming")
    assert world.plan().requeue_after == 60
    world.run(0, 1)
    world.form(0, 1)
    world.settle()
    assert world.status["phase"] == "Running"


def test_deadlines_do_not_run_while_a_job_is_suspended() -> None:
    world = running(2, activeDeadlineSeconds=100, startupDeadlineSeconds=10)
    world.later(90)
    world.spec(suspend=True)
    world.settle()
    world.pods.clear()
    world.later(1000)
    assert world.settle().requeue_after is None
    world.spec(suspend=False)
    plan = world.step()
    assert any(isinstance(action, CreatePod) for action in plan.actions)
    assert world.condition("Failed")["status"] == "False"


def test_nodes_that_had_succeeded_start_again_with_the_others() -> None:
    world = running(2)
    world.exit(0)
    world.settle()
    world.spec(suspend=True)
    world.settle()
    world.pods.clear()
    world.spec(suspend=False)
    world.settle()
    assert world.names() == ["digits-0-1", "digits-1-1"]


def test_a_finished_job_cannot_be_suspended() -> None:
    world = running(1)
    world.exit(0)
    world.settle()
    world.spec(suspend=True)
    world.settle()
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Suspended")["status"] == "False"


@pytest.mark.parametrize("times", [1, 2, 3])
def test_counts_survive_suspensions(times: int) -> None:
    world = running(2)
    world.exit(1, 1)
    world.settle()
    for _ in range(times):
        world.spec(suspend=True)
        world.settle()
        world.pods.clear()
        world.spec(suspend=False)
        world.settle()
    assert world.status["restarts"]["failures"] == 1
    assert world.names() == [f"digits-0-{times}", f"digits-1-{times + 1}"]
