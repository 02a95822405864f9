"""What is shown of single nodes."""

import pytest

from elasticjob.operator.plan import NodeEvent
from elasticjob.rendezvous.orders import RunState
from tests.unit.operator.world import World, running


def test_a_node_that_has_not_joined_is_init() -> None:
    world = World()
    world.settle()
    assert [node["state"] for node in world.status["nodes"]] == ["INIT", "INIT"]


def test_a_member_of_a_round_that_is_replaced_runs_until_it_has_joined_again() -> None:
    world = running(2)
    world.wait(0, state=RunState.REFORMING)
    world.settle()
    assert [node["state"] for node in world.status["nodes"]] == ["INIT", "RUNNING"]
    assert world.status["phase"] == "Reforming"
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Reconciling")["reason"] == "Reforming"


@pytest.mark.parametrize("reason", ["WorkerFailed", "NodeLost"])
def test_the_last_rendezvous_event_of_a_node_says_that_it_failed_until_it_joins_again(reason: str) -> None:
    world = running(2)
    world.wait(0, state=RunState.REFORMING, participants=(world.node(0, 0),))
    world.node_events["digits-1-0"] = NodeEvent(
        pod="digits-1-0", reason=reason, message="exit code 7", state="FAILED", rank=1
    )
    world.settle()
    node = world.entry(1)
    assert (node["state"], node["reason"], node["message"]) == ("FAILED", reason, "exit code 7")
    world.form(0, 1)
    world.settle()
    assert world.entry(1)["state"] == "RUNNING"


def test_the_time_of_a_state_changes_only_with_the_state() -> None:
    world = running(2)
    before = world.entry(0)["lastTransitionTime"]
    world.later(60)
    world.form(1, 0)
    world.settle()
    assert world.entry(0)["rank"] == 1
    assert world.entry(0)["lastTransitionTime"] == before
    world.exit(0)
    world.settle()
    assert world.entry(0)["lastTransitionTime"] == "2030-01-01T12:01:00Z"


def test_the_last_failure_stays_while_the_replacement_trains() -> None:
    world = running(2)
    world.exit(1, 137, why="OOMKilled", message="killed")
    world.settle()
    world.run(1)
    world.form(0, 1)
    world.settle()
    node = world.entry(1)
    assert (node["state"], node["restarts"], node["pod"]) == ("RUNNING", 1, "digits-1-1")
    assert node["lastFailure"] == {"pod": "digits-1-0", "reason": "OOMKilled", "message": "killed", "exitCode": 137}


def test_nodes_of_a_finished_job_are_shown_as_they_ended_when_their_pods_are_gone() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    world.exit(1, 7)
    world.settle()
    world.pods.clear()
    world.settle()
    assert [(node["state"], node.get("exitCode")) for node in world.status["nodes"]] == [
        ("FAILED", None),
        ("FAILED", 7),
    ]


@pytest.mark.parametrize("seen_going", [True, False])
@pytest.mark.parametrize(("code", "state"), [(7, "FAILED"), (0, "SUCCEEDED")])
def test_how_a_node_is_shown_that_stops_with_its_job_does_not_depend_on_what_is_seen_of_its_pod(
    seen_going: bool, code: int, state: str
) -> None:
    world = running(2, restartPolicy={"maxRestarts": 0}, successPolicy="Any")
    world.exit(1, code)
    if seen_going:
        world.settle()
        world.mark_deleted(0)
        world.settle()
        world.exit(0, 143)
        world.settle()
    else:
        world.step()
    world.vanish(0)
    world.settle()
    node = world.entry(0)
    assert (node["state"], node["reason"], node.get("exitCode")) == (state, "JobFinished", None)
    assert node["message"] == "stopped, since the job is over"


def test_an_end_that_was_seen_before_the_pods_of_a_finished_job_go_stays_known() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0}, cleanPodPolicy="None")
    world.exit(1, 7)
    world.settle()
    world.exit(0, 9)
    world.settle()
    world.vanish(0)
    world.settle()
    assert (world.entry(0)["state"], world.entry(0)["exitCode"]) == ("FAILED", 9)


def test_the_machine_of_a_node_is_shown() -> None:
    world = running(1)
    world.pod(0)["spec"]["nodeName"] = "worker-7"
    world.settle()
    assert world.entry(0)["node"] == "worker-7"


def test_conditions_keep_their_time_while_only_their_message_changes() -> None:
    world = World(replicas=3)
    world.settle()
    world.later(60)
    world.run(0)
    world.wait(0)
    world.settle()
    ready = world.condition("Ready")
    assert ready["message"].startswith("1 of 3 joined")
    assert ready["lastTransitionTime"] == "2030-01-01T12:00:00Z"


def test_conditions_say_which_generation_they_are_about() -> None:
    world = running(2)
    world.spec(maxReplicas=9)
    world.settle()
    assert world.status["observedGeneration"] == 2
    assert {one["observedGeneration"] for one in world.status["conditions"]} == {2}


def test_held_membership_is_told() -> None:
    world = running(2)
    assert world.view is not None
    world.form(0, 1, round=1, held=True)
    world.settle()
    held = world.condition("RendezvousReady")
    assert held["reason"] == "HoldingMembership"
    assert "Membership is held" in held["message"]
    assert world.condition("Ready")["status"] == "True"


def test_a_state_that_cannot_be_stored_is_told() -> None:
    world = running(2)
    world.form(0, 1, round=1, details={"storeError": "etcd is not reachable"})
    world.settle()
    assert "cannot be stored: etcd is not reachable" in world.condition("RendezvousReady")["message"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_node_that_rests_says_so_once_however_often_it_is_looked_at(is_known: bool) -> None:
    world = World(replicas=3, minReplicas=1, restartPolicy={"maxRestarts": 1000})
    world.settle()
    for _ in range(2):
        world.vanish(2)
        world.settle()
    assert "rests until" in world.entry(2)["message"]
    if not is_known:
        del world.entry(2)["lastFailure"]
    world.settle()
    assert world.entry(2)["message"].count("rests until") == 1
