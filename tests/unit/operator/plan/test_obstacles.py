"""Pods that cannot be made or started."""

from dataclasses import replace

import pytest

from elasticjob.operator.actions import CreateDisruptionBudget
from elasticjob.operator.plan import ApiProblem, CreatePod, CreateService
from elasticjob.rendezvous.orders import RunOrders, RunState
from tests.unit.operator.world import World, running

QUOTA = 'pods "digits-1-0" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1'


def refused(
    world: World, *, status: int = 403, message: str = QUOTA, target: str = "Pod/digits-1-0", count: int = 1
) -> None:
    """One creation was refused; the others were carried out."""
    world.step()
    world.pods.pop("digits-1-0", None)
    world.problems = (
        ApiProblem(target=target, status=status, reason="Forbidden", message=message, at=world.clock, count=count),
    )


def test_a_refusal_is_shown_in_the_words_of_the_api_server() -> None:
    world = World()
    refused(world)
    world.settle()
    ready = world.condition("Ready")
    assert ready["reason"] == "CreationRefused"
    assert ready["message"] == (
        f"0 of 2 joined (min 2). Pod/digits-1-0 was refused: {QUOTA}. digits-0 is Pending. "
        "No round can form as things are: 2 needed, and only 1 node can come."
    )
    assert world.status["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 0}


def test_a_refused_pod_is_tried_again_after_growing_pauses() -> None:
    for count, pause in ((1, 1), (2, 2), (3, 4), (10, 60)):
        world = World()
        refused(world, count=count)
        plan = world.settle()
        assert not any(isinstance(action, CreatePod) for action in plan.actions)
        assert plan.requeue_after == pause
        world.later(pause)
        assert [action.index for action in world.plan().actions if isinstance(action, CreatePod)] == [1]


@pytest.mark.parametrize("target", ["Service/digits", "PodDisruptionBudget/digits"])
def test_a_refused_companion_is_tried_again_though_nothing_else_wakes_the_job(target: str) -> None:
    # What was in the way may be gone before the refusal is noted: then no event tells of it any more.
    world = World(replicas=2, minReplicas=1)
    problem = ApiProblem(target=target, status=409, reason="AlreadyExists", message="it exists", at=world.clock)
    world.problems = (problem,)
    plan = world.settle()
    kind = {"Service/digits": CreateService, "PodDisruptionBudget/digits": CreateDisruptionBudget}[target]
    assert not any(isinstance(action, kind) for action in plan.actions)
    assert plan.requeue_after == 1
    world.later(1)
    assert any(isinstance(action, kind) for action in world.plan().actions)


def test_when_the_obstacle_is_gone_the_job_goes_on_by_itself() -> None:
    world = World()
    refused(world)
    world.settle()
    world.problems = ()
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0"]
    assert world.condition("Ready")["reason"] != "CreationRefused"


def test_what_a_deleted_job_of_the_name_has_left_is_said_to_be_waited_for_and_is_no_warning() -> None:
    world = World()
    waits = "Waits for Service digits of the deleted job of the same name to be removed"
    world.problems = (
        ApiProblem(
            target="Service/digits", status=409, reason="PredecessorRemains", message=waits, at=world.clock, count=1
        ),
    )
    plan = world.settle()
    assert not any(isinstance(action, CreateService) for action in plan.actions)
    ready = world.condition("Ready")
    assert ready["reason"] == "PredecessorRemains"
    assert ready["message"] == f"0 of 2 joined (min 2). {waits}. digits-0 is Pending. digits-1 is Pending."
    assert "Obstacle" not in world.reasons()
    world.later(1)
    assert any(isinstance(action, CreateService) for action in world.plan().actions)


def test_pods_of_a_deleted_job_of_the_name_do_not_mean_that_no_round_can_form() -> None:
    world = World()
    waits = "Waits for Pod digits-1-0 of the deleted job of the same name to be removed"
    refused(world, status=409, message=waits)
    world.problems = (replace(world.problems[0], reason="PredecessorRemains"),)
    world.settle()
    assert world.condition("Ready")["message"] == f"0 of 2 joined (min 2). {waits}. digits-0 is Pending."


def test_a_template_that_no_pod_can_be_made_of_fails_the_job() -> None:
    world = World()
    message = 'Pod "digits-1-0" is invalid: spec.containers[0].image: Required value'
    refused(world, status=422, message=message)
    world.settle()
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("InvalidTemplate", message)
    assert world.condition("Stalled")["status"] == "True"


def test_an_admission_policy_can_be_lifted_so_the_job_waits() -> None:
    world = World()
    message = "pods \"digits-1-0\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
    refused(world, status=422, message=message)
    world.settle()
    assert world.condition("Failed")["status"] == "False"
    assert message in world.condition("Ready")["message"]


def test_an_image_that_cannot_be_pulled_is_no_failure_and_the_others_run() -> None:
    world = World(replicas=3, minReplicas=2)
    world.settle()
    world.run(0, 1)
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "train:2"'}
    world.pod(2)["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "worker", "restartCount": 0, "state": {"waiting": waiting}}],
    }
    world.form(0, 1)
    world.settle()
    ready = world.condition("Ready")
    assert ready["status"] == "True"
    assert ready["message"] == (
        "round 1 trains on 2 of 3 nodes. 2 of 3 joined (min 2). "
        'digits-2 container worker has ImagePullBackOff: Back-off pulling image "train:2".'
    )
    assert world.condition("Reconciling")["status"] == "True"
    assert world.entry(2)["reason"] == "ImagePullFailed"
    assert world.status["restarts"]["failures"] == 0


def test_a_refused_service_is_shown_and_holds_no_pod() -> None:
    world = World()
    world.problems = (
        ApiProblem(
            target="Service/digits", status=409, reason="AlreadyExists", message="name is taken", at=world.clock
        ),
    )
    plan = world.step()
    assert not any(isinstance(action, CreateService) for action in plan.actions)
    assert world.names() == ["digits-0-0", "digits-1-0"]
    assert "Service/digits was refused: name is taken" in world.condition("Ready")["message"]


def test_a_problem_that_is_no_longer_wanted_is_not_shown() -> None:
    world = running(2)
    world.problems = (
        ApiProblem(target="Pod/digits-7-0", status=403, reason="Forbidden", message=QUOTA, at=world.clock),
    )
    assert world.plan().status is None


def test_an_obstacle_is_told_once() -> None:
    world = World()
    refused(world)
    world.settle()
    world.later(0.5)
    world.settle()
    assert world.reasons().count("Obstacle") == 1


def test_many_obstacles_are_three_and_a_number() -> None:
    world = World(replicas=10)
    world.settle()
    message = world.condition("Ready")["message"]
    assert message == (
        "0 of 10 joined (min 10). digits-0 is Pending. digits-1 is Pending. digits-2 is Pending. "
        "7 more nodes are not in yet."
    )


def test_a_spec_that_cannot_be_understood_is_told_and_its_pods_are_left_alone() -> None:
    world = running(2)
    pods = world.names()
    world.spec(replicas="many")
    world.settle()
    stalled = world.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
    assert stalled["message"] == "spec.replicas must be a whole number from 1 to 10000, not 'many'"
    assert world.names() == pods
    world.spec(replicas=2)
    world.settle()
    assert world.condition("Stalled")["status"] == "False"


def test_a_hopeless_refusal_of_a_pod_that_is_no_longer_wanted_does_not_end_the_job() -> None:
    world = running(2)
    message = 'Pod "digits-7-0" is invalid: spec.containers[0].image: Required value'
    world.problems = (
        ApiProblem(target="Pod/digits-7-0", status=422, reason="Invalid", message=message, at=world.clock),
    )
    assert world.plan().status is None


def test_the_rendezvous_is_told_which_nodes_cannot_come_for_now() -> None:
    world = running(3, minReplicas=1)
    world.pod(2)["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no gpu"}],
    }
    world.wait(0, state=RunState.REFORMING)
    assert orders(world).unable == {2}
    world.form(0, 1, 2)
    assert orders(world).unable == frozenset()


def test_a_node_whose_pod_is_refused_cannot_come_for_now() -> None:
    world = World()
    refused(world)
    assert orders(world).unable == {1}


def orders(world: World) -> RunOrders:
    found = world.plan().orders
    assert found is not None
    return found
