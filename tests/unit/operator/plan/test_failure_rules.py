"""Jobs with rules about the ends of their pods."""

from elasticjob.rendezvous.orders import CloseReason
from tests.unit.operator.world import CrashError, running

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
