"""How rounds form: who is waited for, for how long, and who is told what."""

import pytest

from elasticjob.events import NodeState
from elasticjob.rendezvous.orders import CloseReason, NodePhase, RunState
from elasticjob.rendezvous.protocol import (
    MAX_ROUND,
    ErrorCode,
    JoinWaiting,
    LeaveOutcome,
    ProtocolError,
    join_answer_from_json,
)
from elasticjob.rendezvous.state import State

from .driver import Driver, facts

ALL = ("uid-0", "uid-1", "uid-2")


def formed(nodes: int, *, min_nodes: int = 1, max_nodes: int = 8) -> Driver:
    driver = Driver(nodes, min_nodes=min_nodes, max_nodes=max_nodes)
    driver.join_all(*(f"uid-{index}" for index in range(nodes)))
    assert driver.coordinator.round == 1
    return driver


def test_a_round_forms_at_once_when_every_wanted_node_is_in() -> None:
    driver = Driver(3)
    waiters = [driver.join(uid) for uid in ("uid-2", "uid-0", "uid-1")]
    answers = [driver.formed(waiter) for waiter in waiters]
    assert [answer.rank for answer in answers] == [2, 0, 1]
    assert [member.index for member in answers[0].members] == [0, 1, 2]
    assert {answer.round for answer in answers} == {1}
    assert driver.state() is RunState.FORMED


def test_a_formed_round_is_one_durable_write() -> None:
    driver = formed(3)
    assert [(state.round, state.complete, state.epoch) for state in driver.writes] == [(1, True, 7)]


def test_nobody_is_told_a_round_before_it_is_stored() -> None:
    driver = Driver(2)
    driver.writes_are_held_up = True
    waiters = driver.join_all("uid-0", "uid-1")
    assert driver.answers == {}
    assert driver.coordinator.round == 0
    driver.finish_write()
    assert [driver.formed(waiter).rank for waiter in waiters] == [0, 1]


def test_a_node_that_joins_while_a_round_is_being_stored_is_in_the_next_one() -> None:
    driver = Driver(2, min_nodes=2)
    driver.writes_are_held_up = True
    driver.join_all("uid-0", "uid-1")
    driver.set_pods(facts(2), expected=range(3))
    late = driver.join("uid-2")
    driver.finish_write()
    assert driver.beat("uid-0").waiting == 1
    waiters = driver.join_all("uid-0", "uid-1")
    assert {driver.formed(waiter).round for waiter in (late, *waiters)} == {2}


def test_a_node_lost_while_its_round_is_being_stored_makes_the_others_re_form() -> None:
    driver = Driver(2)
    driver.writes_are_held_up = True
    driver.join_all("uid-0", "uid-1")
    driver.delete_pods("uid-1")
    driver.finish_write()
    assert driver.beat("uid-0").waiting == 1


def test_last_call_lasts_its_time_and_a_later_node_gets_the_next_round() -> None:
    driver = Driver(4, min_nodes=2)
    driver.order(last_call_timeout=5.0)
    waiters = driver.join_all("uid-0", "uid-1")
    assert driver.state() is RunState.LAST_CALL
    driver.wait(4.9)
    waiters.append(driver.join("uid-2"))
    driver.wait(0.2)
    assert {driver.formed(waiter).world_size for waiter in waiters} == {3}
    late = driver.join("uid-3")
    assert driver.beat("uid-0").waiting == 1
    assert late not in driver.answers


def test_last_call_starts_anew_after_the_minimum_was_lost() -> None:
    driver = Driver(3, min_nodes=2)
    driver.order(last_call_timeout=5.0)
    driver.join_all("uid-0", "uid-1")
    driver.wait(2)
    driver.leave("uid-1", LeaveOutcome.LEFT)
    driver.wait(8)
    assert driver.coordinator.round == 0
    driver.join("uid-2", wait=30)
    driver.wait(4.5)
    assert driver.coordinator.round == 0
    driver.wait(1)
    assert driver.coordinator.round == 1


def test_a_round_is_replaced_until_the_next_one_has_formed() -> None:
    driver = formed(3, min_nodes=3, max_nodes=3)
    seen = []
    driver.delete_pods("uid-2")
    for survivor in ("uid-0", "uid-1"):
        seen.append(driver.state())
        driver.join(survivor)
    seen.append(driver.state())  # nobody of round 1 is outstanding, and the replacement has not come
    driver.set_pods(facts(2, uid="uid-22"))
    seen.append(driver.state())
    driver.join("uid-22")
    assert [*seen, driver.state()] == [*[RunState.REFORMING] * 4, RunState.FORMED]


def test_min_equal_to_max_needs_no_last_call() -> None:
    driver = Driver(3, min_nodes=3, max_nodes=3)
    waiters = driver.join_all(*ALL)
    assert [driver.formed(waiter).rank for waiter in waiters] == [0, 1, 2]
    assert driver.names("LastCall") == []


def test_too_few_nodes_within_the_join_time_out_fail_the_run_but_do_not_close_it() -> None:
    driver = Driver(3, min_nodes=3)
    driver.order(join_timeout=20.0)
    waiter = driver.join("uid-0", wait=30)
    driver.wait(21)
    view = driver.coordinator.view(driver.now)
    assert "1 of 3" in view.failed
    assert view.state is RunState.WAITING
    assert driver.names("JoinTimedOut")[0].node_state is NodeState.FAILED
    assert isinstance(driver.poll_over("uid-0", waiter), JoinWaiting)
    again = driver.join("uid-0")
    driver.close(CloseReason.FAILED, "too few nodes")
    assert driver.refusal(again).code is ErrorCode.CLOSED


def test_a_burst_of_new_nodes_is_folded_into_one_round() -> None:
    driver = formed(2)
    driver.set_pods(*(facts(index) for index in range(2, 6)), expected=range(6))
    driver.join_all(*(f"uid-{index}" for index in range(2, 6)))
    assert driver.beat("uid-0").waiting == 4
    driver.join_all("uid-0", "uid-1")
    assert [state.round for state in driver.writes] == [1, 2]
    assert len(driver.writes[-1].participants) == 6


def test_spares_beyond_the_maximum_wait_without_disturbing_anybody() -> None:
    driver = Driver(4, min_nodes=2, max_nodes=2)
    waiters = driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    assert {driver.formed(waiter).world_size for waiter in waiters[:2]} == {2}
    assert driver.beat("uid-0").waiting == 0
    spare = driver.poll_over("uid-2", waiters[2])
    assert isinstance(spare, JoinWaiting)
    assert "spare" in spare.message


def test_a_spare_takes_the_place_of_a_lost_node_and_only_one_does() -> None:
    driver = Driver(4, min_nodes=2, max_nodes=2)
    waiters = driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-1")
    assert driver.beat("uid-0").waiting >= 1
    again = driver.join("uid-0")
    assert driver.formed(again).world_size == 2
    assert sum(waiter in driver.answers for waiter in waiters[2:]) == 1
    assert driver.beat("uid-0").waiting == 0


def test_a_restart_in_place_does_not_wait_for_nodes_that_the_round_lacked() -> None:
    driver = Driver(3, min_nodes=2)
    driver.order(last_call_timeout=5.0)
    driver.join_all("uid-0", "uid-1")
    driver.wait(6)
    assert driver.coordinator.round == 1
    waiters = [driver.join("uid-1", failure=1), driver.join("uid-0")]
    assert {driver.formed(waiter).round for waiter in waiters} == {2}


def test_members_do_not_lose_their_round_to_a_newcomer_before_they_have_heard_of_it() -> None:
    driver = formed(3)
    driver.order(last_call_timeout=5.0)
    driver.set_pods(facts(3), facts(4), expected=range(5))
    driver.join("uid-3", wait=30)
    driver.wait(20, beating=ALL)
    assert driver.coordinator.round == 1
    driver.join("uid-0")
    driver.wait(1, beating=("uid-1", "uid-2"))
    assert driver.coordinator.round == 1, "the last call starts with the first member that is back"


def test_a_member_that_stops_its_workers_slowly_gets_the_close_time_out_in_addition() -> None:
    driver = formed(3, min_nodes=2)
    driver.order(last_call_timeout=5.0, close_timeout=10.0)
    driver.delete_pods("uid-2")
    driver.set_pods(facts(2, uid="uid-22"))
    driver.join("uid-22", wait=30)
    driver.join("uid-0", wait=30)
    driver.wait(14, beating=("uid-1",))
    assert driver.coordinator.round == 1
    driver.join("uid-1")
    assert driver.coordinator.round == 2


def test_a_member_that_never_comes_back_cannot_hold_up_the_others_for_ever() -> None:
    driver = formed(3, min_nodes=1)
    driver.order(last_call_timeout=5.0, close_timeout=10.0)
    driver.delete_pods("uid-2")
    driver.join("uid-0", wait=30)
    driver.wait(16, beating=("uid-1",))
    assert driver.coordinator.round == 2
    assert driver.beat("uid-1").evicted


def test_ranks_follow_the_node_index_over_replacements() -> None:
    driver = formed(3)
    driver.delete_pods("uid-0")
    driver.set_pods(facts(0, uid="uid-00"))
    driver.join_all("uid-1", "uid-2")
    waiter = driver.join("uid-00")
    assert driver.formed(waiter).rank == 0
    assert driver.formed(waiter).round == 2


def test_thirty_of_thirty_two_nodes_that_die_together_cost_one_round() -> None:
    driver = formed(32, min_nodes=30, max_nodes=32)
    driver.delete_pods(*(f"uid-{index}" for index in range(2, 32)))
    driver.join_all("uid-0", "uid-1")
    assert driver.state() is RunState.REFORMING
    driver.set_pods(*(facts(index, uid=f"new-{index}") for index in range(2, 32)))
    for index in range(2, 32):
        driver.join(f"new-{index}")
    assert [state.round for state in driver.writes] == [1, 2]
    assert driver.coordinator.view(driver.now).worker_failures == 0


def test_survivors_below_the_minimum_meet_the_newcomers_in_the_same_round() -> None:
    driver = formed(3, min_nodes=2, max_nodes=3)
    driver.delete_pods("uid-1", "uid-2")
    survivor = driver.join("uid-0", wait=30)
    driver.wait(20)
    assert driver.state() is RunState.REFORMING
    driver.set_pods(facts(1, uid="uid-11"), facts(2, uid="uid-22"))
    newcomers = driver.join_all("uid-11", "uid-22")
    assert {driver.formed(waiter).round for waiter in (survivor, *newcomers)} == {2}


def test_scale_down_needs_no_last_call() -> None:
    driver = formed(3)
    driver.order(expected=frozenset({0, 1}))
    assert driver.beat("uid-0").waiting == 1
    assert driver.beat("uid-2").evicted
    surplus = driver.join("uid-2")
    waiters = driver.join_all("uid-0", "uid-1")
    assert {driver.formed(waiter).world_size for waiter in waiters} == {2}
    assert surplus not in driver.answers


def test_a_draining_member_is_not_waited_for() -> None:
    driver = formed(3)
    driver.set_pods(facts(2, phase=NodePhase.DRAINING, reason="node maintenance"), expected=(0, 1))
    assert driver.beat("uid-1").waiting == 1
    waiters = driver.join_all("uid-0", "uid-1")
    assert {driver.formed(waiter).world_size for waiter in waiters} == {2}
    assert "drains (node maintenance)" in driver.coordinator.view(driver.now).cause


def test_a_draining_member_that_asks_for_the_next_round_has_not_joined_it() -> None:
    driver = formed(3)
    driver.set_pods(facts(2, phase=NodePhase.DRAINING, reason="node maintenance"), expected=(0, 1))
    before = len(driver.names("NodeJoined"))
    waiter = driver.join("uid-2")
    assert waiter not in driver.answers
    assert len(driver.names("NodeJoined")) == before


def test_a_larger_minimum_is_obeyed_in_the_open_round() -> None:
    driver = Driver(4, min_nodes=2)
    driver.order(last_call_timeout=5.0)
    driver.join_all("uid-0", "uid-1", wait=30)
    driver.order(min_nodes=3)
    driver.wait(10)
    assert driver.coordinator.round == 0
    driver.join("uid-2", wait=30)
    driver.wait(6)
    assert driver.coordinator.round == 1


def test_a_larger_maximum_gives_a_spare_its_place() -> None:
    driver = Driver(3, min_nodes=1, max_nodes=2)
    driver.join_all(*ALL)
    driver.order(max_nodes=3)
    assert driver.beat("uid-0").waiting >= 1
    waiters = driver.join_all("uid-0", "uid-1")
    assert {driver.formed(waiter).world_size for waiter in waiters} == {3}


def test_a_restored_round_stands_and_no_number_is_used_twice() -> None:
    before = formed(3)
    driver = Driver(3, state=before.stored)
    assert driver.coordinator.view(driver.now).held
    assert [driver.beat(uid, round=1).waiting for uid in ALL] == [0, 0, 0]
    assert not driver.coordinator.view(driver.now).held
    driver.join_all(*ALL, round=1)
    assert driver.coordinator.round == 2


def test_members_of_a_restored_round_are_held_for_the_grace_period_only() -> None:
    before = formed(3)
    driver = Driver(3, state=before.stored)
    driver.beat("uid-0", round=1)
    driver.beat("uid-1", round=1)
    driver._rounds = {("uid-0", "a"): 1, ("uid-1", "a"): 1}
    driver.wait(14, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-0").waiting == 0
    driver.wait(2, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-0").waiting == 1


def test_a_member_that_was_never_told_its_restored_round_re_opens_it() -> None:
    before = formed(2)
    driver = Driver(2, state=before.stored)
    waiters = driver.join_all("uid-0", "uid-1", round=0)
    assert {driver.formed(waiter).round for waiter in waiters} == {2}


def test_a_pod_that_vanished_while_nobody_led_is_lost_at_once() -> None:
    before = formed(2)
    driver = Driver(1, state=before.stored)
    assert driver.beat("uid-0", round=1).waiting == 1
    with pytest.raises(ProtocolError) as refused:
        driver.beat("uid-1", round=1)
    assert refused.value.code is ErrorCode.FENCED


def test_a_run_whose_state_was_lost_goes_on_after_the_rounds_that_its_nodes_know() -> None:
    driver = Driver(2)
    assert driver.beat("uid-0", round=7).evicted
    waiters = [driver.join("uid-0", round=7), driver.join("uid-1", round=6)]
    assert {driver.formed(waiter).round for waiter in waiters} == {8}


def test_one_caller_cannot_use_up_the_rounds_of_a_run() -> None:
    driver = Driver(2)
    with pytest.raises(ProtocolError, match=f"round is {MAX_ROUND}, .* after {MAX_ROUND // 2} at most") as refused:
        driver.join("uid-0", round=MAX_ROUND)
    assert refused.value.code is ErrorCode.INVALID
    waiters = [driver.join("uid-0", round=MAX_ROUND // 2), driver.join("uid-1", round=6)]
    rounds = [join_answer_from_json(driver.formed(waiter).to_json()) for waiter in waiters]
    assert rounds == [driver.formed(waiter) for waiter in waiters]


def test_a_caller_that_knows_a_newer_round_makes_the_leader_doubt_itself() -> None:
    driver = formed(2)
    with pytest.raises(ProtocolError) as refused:
        driver.beat("uid-0", round=5)
    assert refused.value.code is ErrorCode.NOT_READY


def test_a_stored_state_that_was_open_starts_with_nobody() -> None:
    driver = Driver(2, state=State(round=3, epoch=9, failures=2))
    waiters = driver.join_all("uid-0", "uid-1")
    assert {driver.formed(waiter).round for waiter in waiters} == {3}
    assert driver.coordinator.view(driver.now).worker_failures == 2
