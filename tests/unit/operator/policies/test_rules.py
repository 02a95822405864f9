"""The small rules, each as a table."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.model import Ledger
from elasticjob.operator.policies.budget import budget, worker_failures_left
from elasticjob.operator.policies.deadlines import active_deadline, startup_deadline
from elasticjob.operator.policies.obstacles import ApiProblem, Obstacle, joined_messages, pod_obstacle
from elasticjob.operator.policies.replacement import creations
from elasticjob.operator.policies.sizing import choose_indexes
from elasticjob.operator.policies.success import success
from elasticjob.operator.policies.ttl import seconds_to_live

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=timezone.utc)
SETS = st.frozensets(st.integers(0, 20))


@pytest.mark.parametrize(
    ("current", "wanted", "ready", "completed", "expected"),
    [
        ("", 3, "", "", "012"),
        ("012", 3, "012", "", "012"),
        ("02", 3, "02", "", "012"),
        ("012", 5, "012", "", "01234"),
        ("0123", 3, "0123", "", "012"),
        ("0123", 3, "023", "", "023"),
        ("0123", 2, "01", "", "01"),
        ("0123", 2, "23", "01", "01"),
        ("0123", 3, "012", "3", "013"),
        ("0123", 1, "", "", "0"),
    ],
)
def test_who_stays_and_who_comes(current: str, wanted: int, ready: str, completed: str, expected: str) -> None:
    chosen = choose_indexes(map(int, current), wanted, ready=set(map(int, ready)), completed=set(map(int, completed)))
    assert chosen == set(map(int, expected))


@pytest.mark.parametrize(("marked", "expected"), [("1", "02"), ("01", "2"), ("3", "01"), ("9", "01"), ("012", "0")])
def test_who_is_marked_leaves_first(marked: str, expected: str) -> None:
    chosen = choose_indexes(range(3), len(expected), ready={0, 1, 2}, completed=set(), marked=set(map(int, marked)))
    assert chosen == set(map(int, expected))


@given(current=SETS, wanted=st.integers(1, 25), ready=SETS, completed=SETS)
def test_the_number_is_right_and_nobody_is_exchanged(
    current: frozenset[int], wanted: int, ready: frozenset[int], completed: frozenset[int]
) -> None:
    chosen = choose_indexes(current, wanted, ready=ready, completed=completed)
    assert len(chosen) == wanted
    assert chosen <= current or chosen >= current
    assert choose_indexes(chosen, wanted, ready=ready, completed=completed) == chosen


@pytest.mark.parametrize(
    ("policy", "group", "rank_zero", "completed", "reason"),
    [
        ("All", {0, 1}, 0, {0, 1}, "AllNodesSucceeded"),
        ("All", {0, 1}, 0, {0, 1, 2}, "AllNodesSucceeded"),
        ("All", {0, 1}, 0, {0}, None),
        ("All", set(), None, {0}, None),
        ("RankZero", {0, 1}, 1, {1}, "RankZeroSucceeded"),
        ("RankZero", {0, 1}, 1, {0}, None),
        ("RankZero", {2, 3}, None, {2}, "RankZeroSucceeded"),
        ("Any", {0, 1}, 0, {1}, "AnyNodeSucceeded"),
        ("Any", {0, 1}, 0, {2}, None),
        ("Any", {0, 1}, 0, set(), None),
    ],
)
def test_when_a_group_has_succeeded(
    policy: str, group: set[int], rank_zero: int | None, completed: set[int], reason: str | None
) -> None:
    verdict = success(policy, group=group, rank_zero=rank_zero, completed=completed)
    assert (verdict and verdict.reason) == reason


@pytest.mark.parametrize(
    ("most", "pods", "workers", "over"),
    [(3, 3, 0, False), (3, 4, 0, True), (3, 0, 4, True), (3, 2, 2, True), (0, 0, 0, False), (0, 1, 0, True)],
)
def test_when_the_budget_is_spent(most: int, pods: int, workers: int, over: bool) -> None:
    verdict = budget(max_restarts=most, pod_failures=pods, worker_failures=workers, last="digits-1 ended")
    assert (verdict is not None) == over
    if verdict is not None:
        assert verdict.message.endswith("; last: digits-1 ended")


def test_workers_may_use_what_pods_have_left() -> None:
    assert worker_failures_left(max_restarts=3, pod_failures=1) == 2
    assert worker_failures_left(max_restarts=3, pod_failures=5) == 0


@pytest.mark.parametrize(
    ("limit", "ago", "left", "over"),
    [(None, 99, None, False), (10, 0, 10, False), (10, 9, 1, False), (10, 10, None, True), (10, 1000, None, True)],
)
def test_when_a_deadline_is_over(limit: int | None, ago: int, left: float | None, over: bool) -> None:
    started = NOW - timedelta(seconds=ago)
    for deadline in (
        active_deadline(limit, started=started, now=NOW),
        startup_deadline(limit, started=started, now=NOW, formed=False),
    ):
        assert deadline.seconds_left == left
        assert (deadline.verdict is not None) == over


def test_no_deadline_runs_before_the_start_or_after_the_goal() -> None:
    assert active_deadline(1, started=None, now=NOW).verdict is None
    assert startup_deadline(1, started=NOW - timedelta(hours=1), now=NOW, formed=True).verdict is None


@pytest.mark.parametrize(("ttl", "ago", "left"), [(None, 5, None), (0, 0, 0), (5, 2, 3), (5, 5, 0), (5, 60, -55)])
def test_when_a_finished_job_goes(ttl: int | None, ago: int, left: float | None) -> None:
    assert seconds_to_live(ttl, completed=NOW - timedelta(seconds=ago), now=NOW) == left


def test_a_job_that_is_not_over_does_not_go() -> None:
    assert seconds_to_live(0, completed=None, now=NOW) is None


def due(ledger: Ledger, *problems: ApiProblem, ago: float = 0, present: set[int] | None = None) -> object:
    charged = NOW - timedelta(seconds=ago)
    found = creations(ledger, present=present or set(), problems=problems, charged_at=charged, now=NOW, clock=100.0)
    return found.indexes, found.seconds_left


def test_which_pods_are_created_and_when() -> None:
    nodes = frozenset({0, 1, 2})
    assert due(Ledger(indexes=nodes)) == ((0, 1, 2), None)
    assert due(Ledger(indexes=nodes, completed=frozenset({1})), present={0}) == ((2,), None)
    assert due(Ledger(indexes=nodes), present={0, 1, 2}) == ((), None)
    assert due(Ledger(indexes=nodes, round_failures={1: 1})) == ((0, 1, 2), None)
    assert due(Ledger(indexes=nodes, round_failures={1: 2})) == ((0, 2), 1.0)
    assert due(Ledger(indexes=nodes, round_failures={1: 1}, round_disruptions={1: 2})) == ((0, 2), 2.0)
    assert due(Ledger(indexes=nodes, round_failures={1: 2}), ago=1) == ((0, 1, 2), None)
    assert due(Ledger(indexes=nodes, round_failures={1: 99}), ago=30) == ((0, 2), 30.0)


def test_a_clock_that_was_set_back_holds_nobody_longer_than_the_pause() -> None:
    assert due(Ledger(indexes=frozenset({0}), round_failures={0: 2}), ago=-3600) == ((), 1.0)


def problem(at: float, count: int = 1) -> ApiProblem:
    return ApiProblem(target="Pod/a-0-0", status=403, reason="Forbidden", message="quota", at=at, count=count)


def test_after_a_refusal_all_creations_wait_for_its_pause() -> None:
    ledger = Ledger(indexes=frozenset({0, 1}))
    assert due(ledger, problem(100.0)) == ((), 1.0)
    assert due(ledger, problem(99.5, 3)) == ((), 3.5)
    assert due(ledger, problem(99.0)) == ((0, 1), None)
    assert problem(0.0, 1000).retry_at == 60.0


@pytest.mark.parametrize(
    ("status", "message", "permanent"),
    [
        (422, 'Pod "a-0-0" is invalid: spec.containers[1].name: Duplicate value: "a"', True),
        (422, 'pods "a-0-0" is forbidden: ValidatingAdmissionPolicy denied request: no', False),
        (403, 'pods "a-0-0" is forbidden: exceeded quota: q', False),
        (403, 'pods "a-0-0" is forbidden: no PriorityClass with name x was found', False),
        (403, 'pods "a-0-0" is forbidden: error looking up service account ns/sa: not found', False),
        (400, 'admission webhook "x" denied the request: no', False),
        (500, "failed calling webhook: connection refused", False),
        (0, "timed out", False),
    ],
)
def test_only_an_object_that_is_wrong_itself_is_hopeless(status: int, message: str, permanent: bool) -> None:
    refusal = ApiProblem(target="Pod/a-0-0", status=status, reason="", message=message, at=0.0)
    assert refusal.permanent == permanent


def test_long_explanations_are_cut_and_white_space_is_folded() -> None:
    words = "0/5000 nodes are available:\n" + "taint, " * 200
    pod = {
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}],
        }
    }
    found = pod_obstacle(pod)
    assert found is not None
    assert found.message.startswith("is Pending: 0/5000 nodes are available: taint,")
    assert len(found.message) < 330


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("ErrImagePull", "ImagePullFailed"),
        ("ImagePullBackOff", "ImagePullFailed"),
        ("InvalidImageName", "ImagePullFailed"),
        ("CreateContainerConfigError", "ContainerNotStarted"),
        ("CrashLoopBackOff", "ContainerNotStarted"),
        ("ContainerCreating", None),
        ("PodInitializing", None),
    ],
)
def test_what_keeps_a_container_from_starting(word: str, reason: str | None) -> None:
    waiting = {"name": "fetch", "state": {"waiting": {"reason": word}}}
    found = pod_obstacle({"status": {"phase": "Pending", "initContainerStatuses": [waiting]}})
    assert (found and found.reason) == reason


def test_a_pod_that_is_over_has_no_obstacle() -> None:
    assert (
        pod_obstacle({"status": {"phase": "Failed", "conditions": [{"type": "PodScheduled", "status": "False"}]}})
        is None
    )


def test_equal_messages_are_told_once() -> None:
    same = [Obstacle(reason="r", message="no space.")] * 5
    assert joined_messages(same) == "no space."
