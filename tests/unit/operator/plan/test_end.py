"""Success, deadlines, clean-up, time to live."""

from datetime import timedelta

import pytest

from elasticjob.operator.plan import ApiProblem, CreatePod, DeleteJob, DeletePod
from elasticjob.rendezvous.orders import CloseReason, RunState
from tests.unit.operator.world import START, World, running


def deleted(world: World) -> list[str]:
    return sorted(action.name for action in world.plan().actions if isinstance(action, DeletePod))


def test_a_job_whose_nodes_all_succeed_has_succeeded() -> None:
    world = running(3)
    for index in range(3):
        world.exit(index)
    plan = world.step()
    assert plan.charge_first
    assert plan.orders is not None
    assert plan.orders.close is CloseReason.SUCCEEDED
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Succeeded")["reason"] == "AllNodesSucceeded"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Stalled")["status"] == "False"
    assert world.status["completionTime"] == "2030-01-01T12:00:00Z"
    assert world.status["nodeCounts"]["succeeded"] == 3


def test_nodes_that_have_succeeded_are_expected_no_more() -> None:
    world = running(3)
    world.exit(0)
    world.settle()
    orders = world.plan().orders
    assert orders is not None
    assert orders.expected == {1, 2}
    assert world.status["phase"] == "Running"


def test_a_succeeded_pod_that_is_deleted_is_not_created_again() -> None:
    world = running(3)
    world.exit(0)
    world.settle()
    world.vanish(0)
    world.settle()
    assert world.names() == ["digits-1-0", "digits-2-0"]
    assert world.entry(0)["state"] == "SUCCEEDED"


def test_a_node_that_came_when_the_others_had_finished_does_not_keep_the_job_open() -> None:
    world = running(3, minReplicas=2)
    world.spec(replicas=4)
    world.settle()
    for index in range(3):
        world.exit(index)
    world.settle()
    assert world.status["phase"] == "Succeeded"
    assert "digits-3-0" not in world.names()
    world.vanish(0)
    world.settle()
    assert world.names() == ["digits-1-0", "digits-2-0"]


def test_a_spare_that_runs_gets_time_to_learn_that_the_job_is_over() -> None:
    world = running(3, minReplicas=2)
    world.spec(replicas=4)
    world.settle()
    world.run(3)
    for index in range(3):
        world.exit(index)
    world.settle()
    assert "digits-3-0" in world.names()
    assert world.plan().requeue_after == 30
    world.later(30)
    assert deleted(world) == ["digits-3-0"]


def test_a_spare_that_exits_by_itself_is_shown_as_it_ended() -> None:
    world = running(3, minReplicas=2)
    world.spec(replicas=4)
    world.settle()
    world.run(3)
    for index in range(4):
        world.exit(index)
        world.settle()
    assert world.entry(3)["state"] == "SUCCEEDED"


def test_without_any_round_all_nodes_must_succeed() -> None:
    world = World()
    world.settle()
    world.exit(0)
    world.settle()
    assert world.status["phase"] != "Succeeded"
    world.exit(1)
    world.settle()
    assert world.status["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "index", "phase"),
    [
        ("RankZero", 1, "Succeeded"),
        ("RankZero", 0, "Running"),
        ("Any", 0, "Succeeded"),
        ("Any", 1, "Succeeded"),
        ("All", 1, "Running"),
    ],
)
def test_the_success_policy_decides_whose_success_counts(policy: str, index: int, phase: str) -> None:
    world = running(3, successPolicy=policy)
    world.form(1, 0, 2)
    world.settle()
    world.exit(index)
    world.settle()
    assert world.status["phase"] == phase


def test_success_is_found_while_the_run_is_not_served() -> None:
    world = running(3, minReplicas=2)
    world.spec(replicas=4)
    world.settle()
    world.view = None
    for index in range(3):
        world.exit(index)
    world.settle()
    assert world.status["phase"] == "Succeeded"


def test_a_job_that_is_over_stays_over() -> None:
    world = running(2)
    world.exit(0)
    world.exit(1)
    world.settle()
    world.pods.clear()
    world.later(3600)
    world.settle()
    assert world.status["phase"] == "Succeeded"
    assert world.pods == {}
    plan = world.plan()
    assert plan.orders is None
    assert plan.requeue_after is None


def test_the_run_is_answered_for_as_long_as_an_agent_may_ask() -> None:
    world = running(2, cleanPodPolicy="None", successPolicy="Any")
    world.exit(0)
    world.settle()
    world.later(3600)
    orders = world.plan().orders
    assert orders is not None
    assert orders.close is CloseReason.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "at_once", "later"),
    [
        ("Running", [], ["digits-1-0"]),
        ("All", ["digits-0-0"], ["digits-0-0", "digits-1-0"]),
        ("None", [], []),
    ],
)
def test_pods_go_by_policy(policy: str, at_once: list[str], later: list[str]) -> None:
    world = running(2, cleanPodPolicy=policy, successPolicy="Any")
    world.exit(0)
    assert deleted(world) == at_once
    world.step()
    world.later(30)
    assert sorted({*at_once, *deleted(world)}) == later


def test_a_pod_whose_worker_is_over_is_not_kept_by_its_sidecar() -> None:
    world = running(1)
    world.pod(0)["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "mesh-proxy", "state": {"running": {}}},
            {"name": "worker", "state": {"terminated": {"exitCode": 0}}},
        ],
    }
    world.step()
    assert world.status["phase"] == "Succeeded"
    assert world.pod(0)["metadata"]["deletionTimestamp"]


def test_a_pod_whose_phase_lags_behind_its_containers_keeps_its_logs() -> None:
    world = running(1)
    world.pod(0)["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 0}}}],
    }
    world.step()
    assert world.status["phase"] == "Succeeded"
    assert "deletionTimestamp" not in world.pod(0)["metadata"]


def test_the_active_deadline_fires_without_any_event() -> None:
    world = running(2, activeDeadlineSeconds=100)
    assert world.plan().requeue_after == 100
    world.later(99)
    assert world.plan().requeue_after == 1
    world.later(1)
    world.settle()
    assert world.condition("Failed")["reason"] == "ActiveDeadlineExceeded"


def test_the_startup_deadline_frees_the_resources_of_a_job_that_never_forms() -> None:
    world = World(startupDeadlineSeconds=60)
    world.settle()
    world.later(60)
    world.settle()
    assert world.condition("Failed")["reason"] == "StartupDeadlineExceeded"
    assert world.pods == {}


def test_the_startup_deadline_is_over_once_a_round_has_formed() -> None:
    world = running(2, startupDeadlineSeconds=60)
    world.later(60)
    plan = world.settle()
    assert world.status["phase"] == "Running"
    assert plan.requeue_after is None


@pytest.mark.parametrize("ttl", [0, 5])
def test_a_finished_job_is_deleted_when_its_time_is_over(ttl: int) -> None:
    world = running(1, ttlSecondsAfterFinished=ttl)
    world.exit(0)
    plan = world.step()
    assert not any(isinstance(action, DeleteJob) for action in plan.actions)
    world.later(ttl)
    world.step()
    assert world.deleted


def test_the_time_to_live_may_be_changed_afterwards() -> None:
    world = running(1, ttlSecondsAfterFinished=3600)
    world.exit(0)
    world.settle()
    world.later(10)
    world.spec(ttlSecondsAfterFinished=1)
    world.step()
    assert world.deleted


def test_a_running_job_is_never_deleted() -> None:
    world = running(1, ttlSecondsAfterFinished=0)
    world.later(3600)
    assert world.plan().actions == ()


def test_a_failure_before_any_pod_existed_has_a_completion_time_too() -> None:
    world = World(startupDeadlineSeconds=1, ttlSecondsAfterFinished=5)
    world.problems = (ApiProblem(target="Pod/digits-0-0", status=403, reason="Forbidden", message="quota", at=1000.0),)
    world.step()
    world.later(1)
    world.step()
    assert world.status["completionTime"] == "2030-01-01T12:00:01Z"
    world.later(5)
    world.step()
    assert world.deleted


def test_a_job_that_is_being_deleted_creates_nothing_and_closes_its_run() -> None:
    world = running(2)
    world.vanish(1)
    world.body["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    plan = world.step()
    assert not any(isinstance(action, CreatePod) for action in plan.actions)
    assert plan.orders is not None
    assert plan.orders.close is CloseReason.DELETED
    assert world.status["phase"] == "Terminating"
    assert world.plan().status is None


def test_verdicts_are_told_once() -> None:
    world = running(2)
    world.exit(0)
    world.exit(1)
    world.settle()
    world.later(100)
    world.settle()
    assert world.reasons().count("JobSucceeded") == 1


def test_a_closed_run_that_nobody_here_closed_ends_the_job() -> None:
    world = running(2)
    world.wait(state=RunState.CLOSED)
    world.settle()
    assert world.condition("Failed")["reason"] == "RendezvousFailed"


def test_stamps_are_those_of_the_planning() -> None:
    world = running(2)
    assert world.now - START == timedelta(0)
    assert world.status["startTime"] == "2030-01-01T12:00:00Z"
