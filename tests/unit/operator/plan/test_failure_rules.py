"""Jobs with rules about the ends of their pods."""

from elasticjob.rendezvous.orders import CloseReason
from tests.unit.operator.world import CrashError, World, running, template

WRONG_ARGUMENTS = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}
TRY_AGAIN = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
EVICTIONS = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_an_exit_code_fails_the_job_at_once_and_the_condition_says_by_which_rule() -> None:
    world = running(2, restartPolicy={"maxRestarts": 9, "rules": [TRY_AGAIN, WRONG_ARGUMENTS]})
    world.exit(1, 2, message="unknown option --epoch")
    plan = world.step()
    assert plan.charge_first
    assert plan.orders is not None
    assert plan.orders.close is CloseReason.FAILED
    failed = world.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", "FailureRule")
    assert failed["message"] == (
        "by restartPolicy.rules[1]: digits-1 ended with exit code 2 (Error): unknown option --epoch"
    )
    assert world.created == ["digits-0-0", "digits-1-0"]


def test_an_ignored_exit_code_uses_no_budget_and_the_node_is_replaced() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0, "rules": [TRY_AGAIN]})
    world.exit(1, 42)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-1"]
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    assert world.entry(1)["lastFailure"]["exitCode"] == 42


def test_evictions_use_the_budget_where_a_rule_says_so() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0, "rules": [EVICTIONS]})
    world.exit(1, 137, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}])
    world.settle()
    assert world.condition("Failed")["reason"] == "MaxRestartsExceeded"


def test_the_end_that_fails_the_job_is_not_forgotten_when_the_operator_dies() -> None:
    world = running(2, restartPolicy={"rules": [WRONG_ARGUMENTS]})
    world.exit(1, 2)
    for writes in (0, 1, 2):
        try:
            world.step(crash_after=writes)
        except CrashError:
            continue
    world.settle()
    assert world.condition("Failed")["reason"] == "FailureRule"
    assert world.status["restarts"]["failures"] == 1


def test_what_a_node_does_that_is_told_to_leave_fails_nobody() -> None:
    world = running(2, minReplicas=1, restartPolicy={"rules": [WRONG_ARGUMENTS]})
    world.spec(replicas=1)
    world.settle()
    world.exit(1, 2)
    world.settle()
    assert world.condition("Failed")["status"] == "False"


# Workers that the kubelet restarts in their pods.


def restarting(*rules: object, max_restarts: int = 9) -> World:
    return running(
        2, template=template(restartPolicy="OnFailure"), restartPolicy={"maxRestarts": max_restarts, "rules": [*rules]}
    )


def test_an_end_in_place_fails_the_job_before_the_kubelet_restarts_it() -> None:
    world = restarting(TRY_AGAIN, WRONG_ARGUMENTS)
    world.exit_in_place(1, 2, message="unknown option --epoch")
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "FailureRule"
    assert failed["message"] == (
        "by restartPolicy.rules[1]: digits-1 ended with exit code 2 (Error): unknown option --epoch"
    )


def test_an_ignored_end_in_place_uses_no_budget_and_keeps_its_pod() -> None:
    world = restarting(TRY_AGAIN, max_restarts=0)
    world.exit_in_place(1, 42)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0"]
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    assert world.entry(1)["lastFailure"] == {"pod": "digits-1-0", "reason": "Error", "exitCode": 42}
    told = next(event for event in world.events if event.reason == "NodeDisrupted")
    assert told.message == "digits-1 was disrupted and is restarted in its pod (Error, exit code 42)"


def test_other_ends_in_place_use_the_budget() -> None:
    world = restarting(TRY_AGAIN, max_restarts=0)
    world.exit_in_place(1, 7)
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "MaxRestartsExceeded"
    assert failed["message"].endswith("last: digits-1 ended with exit code 7 (Error)")


def test_an_end_in_place_is_counted_once_though_the_operator_dies_at_any_write() -> None:
    world = restarting()
    world.exit_in_place(1, 7)
    for writes in (0, 0, 1):
        try:
            world.step(crash_after=writes)
        except CrashError:
            continue
    world.settle()
    world.restart_in_place(1)
    world.settle()
    assert world.status["restarts"]["failures"] == 1
    assert world.status["ledger"]["endsInPlace"] == "1:1"
    assert world.reasons().count("NodeFailed") == 1


def test_ends_that_nobody_saw_are_judged_as_the_newest() -> None:
    world = restarting(TRY_AGAIN)
    world.exit_in_place(1, 42, restarts=2)
    world.settle()
    assert world.status["restarts"] == {"failures": 0, "disruptions": 3, "resizes": 0}


def test_an_end_in_place_and_the_loss_of_the_pod_that_follows_are_two_things() -> None:
    world = restarting()
    world.exit_in_place(1, 7)
    world.settle()
    world.mark_deleted(1)
    world.settle()
    assert world.status["restarts"] == {"failures": 1, "disruptions": 1, "resizes": 0}
    world.later(1)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-1-1"]
    assert "endsInPlace" not in world.status["ledger"]


def test_a_condition_of_the_pod_judges_ends_in_place_as_well() -> None:
    world = restarting({"action": "FailJob", "onPodConditions": [{"type": "BadConfiguration"}]})
    world.pod(1)["status"]["conditions"] = [{"type": "BadConfiguration", "status": "True"}]
    world.exit_in_place(1, 7)
    world.settle()
    assert world.condition("Failed")["reason"] == "FailureRule"
