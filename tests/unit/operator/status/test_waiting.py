"""What a job that waits says: for what, since when, and until when."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticjob.operator.plan import ApiProblem, NodeEvent
from elasticjob.rendezvous.orders import RunState
from tests.unit.operator.world import World, running

NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."


def unschedulable(world: World, index: int, *, since: str = "2030-01-01T11:58:00Z") -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": NO_ROOM, "lastTransitionTime": since}
    world.pod(index)["status"] = {"phase": "Pending", "conditions": [condition]}


def unpullable(world: World, index: int) -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such tag"}
    containers = [{"name": "worker", "restartCount": 0, "state": {"waiting": waiting}}]
    world.pod(index)["status"] = {"phase": "Pending", "containerStatuses": containers}


def started(world: World, index: int, at: str = "2030-01-01T12:00:00Z") -> None:
    world.run(index)
    world.pod(index)["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at}}


def no_room(world: World) -> None:
    unschedulable(world, 1)
    world.run(0)
    world.wait(0)


def no_image(world: World) -> None:
    unpullable(world, 1)
    world.run(0)
    world.wait(0)


def nobody_calls(world: World) -> None:
    started(world, 0)
    started(world, 1)
    world.later(90)


def one_is_late(world: World) -> None:
    started(world, 0)
    started(world, 1)
    world.wait(0)
    world.later(300)


def last_call(world: World) -> None:
    world.run(0)
    world.wait(0, state=RunState.LAST_CALL, deadline_seconds=30.0)


def worker_failed(world: World) -> None:
    world.run(0, 1)
    world.node_events["digits-1-0"] = NodeEvent(
        pod="digits-1-0", reason="WorkerFailed", message="digits-1: exit code 7", state="FAILED"
    )
    world.wait(0)


def calls_for_another_run(world: World) -> None:
    started(world, 0)
    started(world, 1)
    world.wait(0, misdirected={world.pod(1)["metadata"]["uid"]: "my-run"})
    world.later(300)


def all_call_for_another_run(world: World) -> None:
    calls_for_another_run(world)
    world.wait(misdirected={world.pod(index)["metadata"]["uid"]: "my-run" for index in (0, 1)})


@pytest.mark.parametrize(
    ("happens", "reason", "message"),
    [
        (
            no_room,
            "Unschedulable",
            f"1 of 2 joined (min 2). digits-1 is Pending since 2030-01-01T11:58:00Z: {NO_ROOM} "
            "No round can form as things are: 2 needed, and only 1 node can come.",
        ),
        (
            no_image,
            "ImagePullFailed",
            "1 of 2 joined (min 2). digits-1 container worker has ErrImagePull: no such tag. "
            "No round can form as things are: 2 needed, and only 1 node can come.",
        ),
        (
            nobody_calls,
            "NoCaller",
            "0 of 2 joined (min 2). No pod has called the rendezvous in 90 s: the command of the worker must be "
            "torchrun or the launcher, and pods must reach elasticjob-rendezvous.system.svc:8443. "
            "digits-0 runs since 12:00:00Z and has not joined. digits-1 runs since 12:00:00Z and has not joined.",
        ),
        (
            one_is_late,
            "WaitingForNodes",
            "1 of 2 joined (min 2). digits-1 runs since 12:00:00Z and has not joined.",
        ),
        (
            last_call,
            "LastCall",
            "1 of 2 joined (min 2). digits-1 is Pending. "
            "Starts at 12:00:30Z with the nodes that are in (lastCallTimeoutSeconds).",
        ),
        (
            worker_failed,
            "WaitingForNodes",
            "1 of 2 joined (min 2). digits-1 runs and has not joined again after WorkerFailed: exit code 7.",
        ),
        (
            calls_for_another_run,
            "WaitingForNodes",
            "1 of 2 joined (min 2). digits-1 runs and calls for run 'my-run', not for that of this job: its command "
            "must name none (--rdzv-id).",
        ),
        (
            all_call_for_another_run,
            "WaitingForNodes",
            "0 of 2 joined (min 2). digits-0 runs and calls for run 'my-run', not for that of this job: its command "
            "must name none (--rdzv-id). digits-1 runs and calls for run 'my-run', not for that of this job: its "
            "command must name none (--rdzv-id).",
        ),
    ],
)
def test_a_waiting_job_says_for_what(happens: Callable[[World], None], reason: str, message: str) -> None:
    world = World()
    world.settle()
    happens(world)
    world.settle()
    ready = world.condition("Ready")
    assert (ready["reason"], ready["message"]) == (reason, message)


def silent(world: World, *indexes: int) -> None:
    """These nodes have missed a keep-alive."""
    assert world.view is not None
    participants = tuple(replace(node, silent=node.index in indexes) for node in world.view.participants)
    waiting = tuple(replace(node, silent=node.index in indexes) for node in world.view.waiting)
    world.view = replace(world.view, participants=participants, waiting=waiting)


def test_a_node_that_joined_and_fell_silent_is_named() -> None:
    world = World(replicas=3)
    world.settle()
    world.run(0, 1, 2)
    world.wait(0, 1)
    silent(world, 1)
    world.settle()
    assert world.condition("Ready")["message"] == (
        "2 of 3 joined (min 3). digits-2 runs and has not joined. "
        "digits-1 joined, has not called for 10 s and counts as lost after 15 s."
    )


def test_a_silent_member_of_a_round_that_trains_is_named() -> None:
    world = running()
    silent(world, 1)
    world.settle()
    ready = world.condition("Ready")
    assert ready["status"] == "True"
    assert ready["message"] == (
        "round 1 trains on 2 of 2 nodes. digits-1 joined, has not called for 10 s and counts as lost after 15 s."
    )


@pytest.mark.parametrize(
    ("spec", "deadline", "sentence"),
    [
        ({}, None, ""),
        ({"startupDeadlineSeconds": 310}, None, "Fails at 12:05:10Z (startupDeadlineSeconds)."),
        ({}, 600.0, "Fails at 12:10:00Z (joinTimeoutSeconds)."),
        ({"startupDeadlineSeconds": 310}, 600.0, "Fails at 12:05:10Z (startupDeadlineSeconds)."),
        ({"startupDeadlineSeconds": 900}, 600.0, "Fails at 12:10:00Z (joinTimeoutSeconds)."),
        ({"activeDeadlineSeconds": 60}, 600.0, "Fails at 12:01:00Z (activeDeadlineSeconds)."),
        ({"activeDeadlineSeconds": 86400}, None, "Fails at 2030-01-02T12:00:00Z (activeDeadlineSeconds)."),
    ],
)
def test_the_earliest_deadline_is_told(spec: dict[str, Any], deadline: float | None, sentence: str) -> None:
    world = World(**spec)
    world.settle()
    world.run(0)
    world.wait(0, deadline_seconds=deadline)
    world.settle()
    assert world.condition("Ready")["message"] == f"1 of 2 joined (min 2). digits-1 is Pending. {sentence}".strip()


@pytest.mark.parametrize(
    ("spec", "begins_anew", "sentence"),
    [
        ({}, True, "Starts at 12:00:40Z with the nodes that are in (lastCallTimeoutSeconds)."),
        (
            {"waitForReplicasSeconds": 60},
            True,
            "Starts at 12:00:40Z with the nodes that are in (waitForReplicasSeconds).",
        ),
        (
            {"waitForReplicasSeconds": 60},
            False,
            "Starts at 12:00:40Z with the nodes that are in (lastCallTimeoutSeconds).",
        ),
        (
            {"waitForReplicasSeconds": 20},
            True,
            "Starts at 12:00:40Z with the nodes that are in (lastCallTimeoutSeconds).",
        ),
        (
            {"waitForReplicasSeconds": 29, "startupDeadlineSeconds": 30},
            True,
            "Fails at 12:00:30Z (startupDeadlineSeconds).",
        ),
    ],
)
def test_the_rule_by_which_a_round_waits_for_more_nodes_is_told(
    spec: dict[str, Any], begins_anew: bool, sentence: str
) -> None:
    world = World(minReplicas=1, **spec)
    world.settle()
    world.run(0)
    world.wait(0, state=RunState.LAST_CALL, deadline_seconds=40.0, begins_anew=begins_anew)
    world.settle()
    assert world.condition("Ready")["message"] == f"1 of 2 joined (min 1). digits-1 is Pending. {sentence}"


def test_a_round_that_trains_has_no_outlook_of_failure() -> None:
    world = running(2, startupDeadlineSeconds=60, activeDeadlineSeconds=600)
    assert world.condition("Ready")["message"] == "round 1 trains on 2 of 2 nodes"


def test_once_a_round_has_formed_the_startup_deadline_is_no_more() -> None:
    world = running(2, startupDeadlineSeconds=60)
    world.wait(0, state=RunState.REFORMING, deadline_seconds=600.0)
    world.settle()
    assert world.condition("Ready")["message"].endswith("Fails at 12:10:00Z (joinTimeoutSeconds).")


def test_a_running_deadline_costs_no_writes() -> None:
    world = World(startupDeadlineSeconds=600)
    world.settle()
    started(world, 0)
    world.wait(0, deadline_seconds=600.0)
    world.settle()
    writes = world.status_writes
    for second in range(60):
        world.later(1)
        assert world.view is not None
        world.view = replace(world.view, deadline_seconds=599.0 - second)
        world.settle()
    assert world.status_writes == writes


def test_silence_is_looked_for_when_it_is_due_and_told_in_an_event() -> None:
    world = World()
    world.settle()
    started(world, 0)
    plan = world.settle()
    assert plan.requeue_after == 90
    world.later(89)
    assert world.settle().requeue_after == 1
    assert world.condition("Ready")["reason"] == "WaitingForNodes"
    world.later(1)
    assert world.settle().requeue_after is None
    assert world.condition("Ready")["reason"] == "NoCaller"
    assert [event.type for event in world.events if event.reason == "Obstacle"] == ["Warning"]


@pytest.mark.parametrize("called", ["joined", "left again", "formed", "not served"])
def test_whoever_was_called_is_not_told_to_be_silent(called: str) -> None:
    world = World()
    world.settle()
    started(world, 0)
    if called == "joined":
        world.wait(0)
    if called == "left again":
        world.node_events["digits-0-0"] = NodeEvent(pod="digits-0-0", reason="NodeLeft", message="", state="RUNNING")
    if called == "formed":
        world.form(0)
    if called == "not served":
        world.view = None
    world.later(1000)
    plan = world.settle()
    assert "called the rendezvous" not in world.condition("Ready")["message"]
    assert plan.requeue_after is None


def test_a_member_that_still_trains_in_the_old_round_is_told_apart() -> None:
    world = running(3, minReplicas=2)
    world.exit(2, 1)
    world.wait(0, state=RunState.REFORMING, participants=(world.node(0, 0), world.node(1, 1)))
    world.settle()
    assert "digits-1 has not heard of the new round yet." in world.condition("Ready")["message"]


def test_survivors_that_are_too_few_say_that_no_round_can_form() -> None:
    world = running(3, minReplicas=2)
    for index in (1, 2):
        world.exit(index, 137, why="OOMKilled")
    world.settle()
    world.later(60)
    world.settle()
    unschedulable(world, 1)
    unschedulable(world, 2)
    world.wait(0, state=RunState.REFORMING, participants=(), deadline_seconds=540.0)
    world.settle()
    assert world.condition("Ready")["message"].endswith(
        "No round can form as things are: 2 needed, and only 1 node can come. Fails at 12:10:00Z (joinTimeoutSeconds)."
    )


def test_nodes_that_have_succeeded_are_not_needed_again() -> None:
    world = running(3, minReplicas=2)
    world.exit(0)
    world.settle()
    world.exit(1, 1)
    world.settle()
    world.later(60)
    world.settle()
    unschedulable(world, 1)
    world.wait(2, state=RunState.REFORMING, participants=())
    world.settle()
    assert "No round can form" not in world.condition("Ready")["message"]


def test_a_closed_run_ends_the_job_instead_of_keeping_everyone_waiting() -> None:
    world = running(2)
    world.wait(0, 1, state=RunState.CLOSED, cause="closed by a member")
    world.settle()
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("RendezvousFailed", "closed by a member")


def test_refused_pods_count_as_nodes_that_cannot_come() -> None:
    world = World(replicas=3, minReplicas=3)
    world.step()
    world.pods.pop("digits-1-0")
    problem = ApiProblem(target="Pod/digits-1-0", status=403, reason="Forbidden", message="no quota", at=world.clock)
    world.problems = (problem,)
    world.settle()
    assert "3 needed, and only 2 nodes can come." in world.condition("Ready")["message"]
