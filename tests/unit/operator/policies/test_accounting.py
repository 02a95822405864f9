"""Ends are put down once and counted as incidents."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.model import Ledger
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.policies.accounting import account, current_pods, enter_round, suspend, write_off
from elasticjob.operator.policies.ends_in_place import EndsInPlace
from elasticjob.operator.policies.pod_end import EndKind, PodEnd

STAMP = "2030-01-01T12:00:00Z"
CRASH = PodEnd(kind=EndKind.FAILED, reason="Error", exit_code=1)
LOSS = PodEnd(kind=EndKind.DISRUPTED, reason="Evicted")
DONE = PodEnd(kind=EndKind.SUCCEEDED, reason="Completed", exit_code=0)
THREE = Ledger(indexes=frozenset({0, 1, 2}))


def pod(index: int, attempt: int = 0, end: PodEnd | None = None, restarts: int = 0, last: PodEnd = CRASH) -> PodFacts:
    return PodFacts(
        name=f"digits-{index}-{attempt}",
        uid=f"u{index}-{attempt}",
        index=index,
        attempt=attempt,
        phase="Running" if end is None else "Failed",
        node="",
        ready=True,
        deleting=False,
        target=False,
        end=end,
        obstacle=None,
        ends_in_place=EndsInPlace(count=restarts, last=last if restarts else None),
    )


def test_living_pods_are_only_noted() -> None:
    ledger, ends = account(THREE, [pod(0), pod(1)], STAMP)
    assert ends == ()
    assert ledger.seen == {0: 1, 1: 1}
    assert (ledger.failures, ledger.charged_at) == (0, "")


def test_accounting_twice_counts_once() -> None:
    pods = [pod(0), pod(1, end=CRASH), pod(2, end=LOSS)]
    first, ends = account(THREE, pods, STAMP)
    second, again = account(first, pods, "2031-01-01T00:00:00Z")
    assert [one.index for one in ends] == [1, 2]
    assert again == ()
    assert (second.failures, second.disruptions, second.charged_at) == (1, 1, STAMP)


def test_ends_in_one_round_are_one_incident_and_those_of_the_next_round_another() -> None:
    ledger, _ = account(THREE, [pod(0, end=CRASH), pod(1, end=CRASH)], STAMP)
    ledger, _ = account(ledger, [pod(0, 1), pod(1, 1), pod(2, end=CRASH)], STAMP)
    assert ledger.failures == 1
    ledger, _ = account(enter_round(ledger, 1), [pod(0, 1, end=CRASH), pod(1, 1), pod(2, 1)], STAMP)
    assert ledger.failures == 2


def test_one_node_that_ends_again_and_again_is_counted_each_time() -> None:
    ledger = THREE
    for attempt in range(4):
        ledger, _ = account(ledger, [pod(0, attempt, end=CRASH)], STAMP)
    assert ledger.failures == 4


def test_an_older_round_is_no_news() -> None:
    ledger = replace(THREE, round=5, round_failures={0: 1})
    assert enter_round(ledger, 4) == enter_round(ledger, 5) == ledger


def test_nodes_that_do_not_belong_to_the_job_are_charged_to_nobody() -> None:
    ledger, ends = account(Ledger(indexes=frozenset({0})), [pod(0), pod(1, end=CRASH), pod(2, end=DONE)], STAMP)
    assert ends == ()
    assert ledger.failures == 0
    assert ledger.ended == {0: 0, 1: 1, 2: 1}


def test_a_pod_that_is_ahead_of_the_ledger_shows_that_the_older_ones_are_over() -> None:
    ledger, ends = account(THREE, [pod(0, 5)], STAMP)
    assert ends == ()
    assert (ledger.seen[0], ledger.ended[0]) == (6, 5)


def test_the_newest_pod_that_is_not_over_counts() -> None:
    ledger = replace(THREE, ended={0: 1})
    current = current_pods(ledger, [pod(0, 0), pod(0, 1), pod(0, 2)])
    assert current[0].attempt == 2


def test_kubelet_restarts_begin_anew_with_a_new_pod() -> None:
    ledger, _ = account(THREE, [pod(0, restarts=2)], STAMP)
    assert ledger.failures == 2
    ledger, _ = account(ledger, [pod(0, restarts=2)], STAMP)
    assert ledger.failures == 2
    ledger, _ = account(ledger, [pod(0, end=LOSS, restarts=2)], STAMP)
    ledger, _ = account(enter_round(ledger, 1), [pod(0, 1, restarts=1)], STAMP)
    assert (ledger.failures, ledger.disruptions) == (3, 1)


def test_what_is_written_off_is_over_and_no_success_any_more() -> None:
    ledger = replace(THREE, seen={1: 3}, ended={1: 2}, completed=frozenset({1, 2}))
    after = write_off(ledger, {1})
    assert after.ended[1] == 3
    assert after.completed == {2}


def test_suspending_ends_every_attempt_and_keeps_the_counts() -> None:
    ledger = replace(THREE, seen={0: 1, 1: 2}, ended={1: 1}, failures=3, round=4)
    after = suspend(ledger, [pod(0), pod(1, 1), pod(2)], 5)
    assert after.ended == {0: 1, 1: 2, 2: 1}
    assert after.indexes == frozenset()
    assert (after.failures, after.base_round) == (3, 5)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([CRASH, LOSS, DONE, None])), max_size=30))
def test_counts_never_fall_and_no_attempt_is_over_before_it_was_seen(steps: list[tuple[int, PodEnd | None]]) -> None:
    ledger = THREE
    for index, end in steps:
        before = ledger
        ledger, _ = account(ledger, [pod(index, ledger.ended.get(index, 0), end=end)], STAMP)
        assert ledger.failures >= before.failures
        assert ledger.disruptions >= before.disruptions
        assert all(ledger.ended.get(one, 0) <= ledger.seen.get(one, 0) for one in range(3))
        assert before.completed <= ledger.completed
