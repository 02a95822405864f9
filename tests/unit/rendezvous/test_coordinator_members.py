"""How members are lost, leave, fail and come back; how calls are refused; how a run is closed."""

import pytest

from elasticjob.events import NodeState
from elasticjob.rendezvous.coordinator import LEFT_GRACE
from elasticjob.rendezvous.coordinator.membership import SOON
from elasticjob.rendezvous.orders import CloseReason, NodePhase, RunState
from elasticjob.rendezvous.protocol import Endpoint, ErrorCode, JoinWaiting, LeaveOutcome, LeaveRequest, ProtocolError

from .driver import Driver, facts

ALL = ("uid-0", "uid-1", "uid-2")


def formed(nodes: int = 3, *, min_nodes: int = 1, max_nodes: int = 8) -> Driver:
    driver = Driver(nodes, min_nodes=min_nodes, max_nodes=max_nodes)
    driver.join_all(*(f"uid-{index}" for index in range(nodes)))
    assert driver.coordinator.round == 1
    return driver


# -- losses


@pytest.mark.parametrize(
    ("phase", "word"),
    [(NodePhase.FAILED, "its pod failed (OOMKilled)"), (NodePhase.DRAINING, "its pod drains (OOMKilled)")],
)
def test_what_the_pod_watch_sees_reaches_survivors_at_once(phase: NodePhase, word: str) -> None:
    driver = formed()
    driver.set_pods(facts(2, phase=phase, reason="OOMKilled"))
    assert driver.beat("uid-0").waiting == 1
    assert f"{word} (pod watch)" in driver.coordinator.view(driver.now).cause


def test_a_node_that_crashes_without_a_pod_event_is_found_by_its_keep_alives() -> None:
    driver = formed()
    driver.wait(14, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-0").waiting == 0
    driver.wait(1.5, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-0").waiting == 1
    assert "keep-alive" in driver.names("NodeLost")[0].message


def test_a_loss_says_who_noticed_it_and_after_how_much_silence() -> None:
    driver = formed(3)
    driver.set_pods(facts(2, phase=NodePhase.FAILED), expected=(0, 1, 2))
    for _ in range(15):
        driver.wait(1)
        driver.beat("uid-0")
    by_pod, by_calls = driver.names("NodeLost")
    assert (by_pod.index, by_pod.detector, by_pod.silence) == (2, "pod watch", 0.0)
    assert (by_calls.index, by_calls.detector, by_calls.silence) == (1, "keep-alive", 15.0)


def test_a_node_that_was_given_up_and_comes_back_is_told_to_join_again() -> None:
    driver = formed()
    driver.wait(16, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-2").evicted
    driver.join_all(*ALL)
    assert driver.coordinator.round == 2


def test_the_time_that_the_leader_itself_stood_still_counts_against_nobody() -> None:
    driver = formed()
    driver.now += 60
    driver.tick()
    assert driver.beat("uid-0").waiting == 0
    assert driver.state() is RunState.FORMED


def test_the_held_call_of_a_node_that_is_given_up_is_answered() -> None:
    driver = Driver(2, min_nodes=2)
    waiter = driver.join("uid-0")
    driver.wait(34)
    driver.now += 1.5
    driver.tick()
    assert driver.answers or waiter
    assert isinstance(driver.answers[waiter], JoinWaiting)


def test_the_time_that_the_leader_stood_still_counts_against_nobody_if_orders_come_first() -> None:
    driver = formed()
    driver.now += 60
    driver.order(join_timeout=601.0)
    assert driver.state() is RunState.FORMED


def test_a_joiner_that_stops_polling_is_dropped_from_the_open_round() -> None:
    driver = Driver(3, min_nodes=2)
    driver.join("uid-0", wait=30)
    waiter = driver.join("uid-1", wait=1)
    assert driver.state() is RunState.LAST_CALL
    driver.poll_over("uid-1", waiter)
    driver.wait(16)
    assert driver.state() is RunState.WAITING


def test_a_joiner_whose_connection_broke_is_given_its_keep_alive_time() -> None:
    driver = Driver(3, min_nodes=2)
    driver.join("uid-0", wait=30)
    waiter = driver.join("uid-1", wait=30)
    driver.hang_up("uid-1", waiter)
    driver.wait(14)
    assert driver.state() is RunState.LAST_CALL
    driver.wait(2)
    assert driver.state() is RunState.WAITING


def test_the_answer_to_a_broken_connection_is_kept_for_the_next_call() -> None:
    driver = Driver(2)
    driver.hang_up("uid-0", driver.join("uid-0"))
    driver.join("uid-1")
    assert driver.coordinator.round == 1
    assert driver.formed(driver.join("uid-0")).round == 1
    assert driver.beat("uid-1").waiting == 0


def test_a_repeated_join_whose_answer_was_lost_gets_the_same_answer() -> None:
    driver = Driver(2)
    first = driver.formed(driver.join_all("uid-0", "uid-1")[0])
    assert driver.formed(driver.join("uid-0", round=0)) == first
    assert driver.coordinator.round == 1


def test_of_two_held_calls_of_one_node_only_the_newer_is_kept() -> None:
    driver = Driver(2)
    older, newer = driver.join("uid-0"), driver.join("uid-0")
    assert isinstance(driver.answers[older], JoinWaiting)
    driver.join("uid-1")
    assert driver.formed(newer).rank == 0


# -- leaving


def test_a_node_that_leaves_does_not_close_the_run() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.LEFT)
    assert driver.state() is RunState.FORMED
    driver.wait(LEFT_GRACE + 0.5, beating=("uid-0", "uid-2"))
    assert driver.beat("uid-0").waiting == 1
    waiters = [*driver.join_all("uid-0", "uid-2"), driver.join("uid-1", incarnation="b")]
    assert {driver.formed(waiter).round for waiter in waiters} == {2}


def test_a_node_that_leaves_because_it_failed_is_lost_at_once() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.FAILED)
    assert driver.beat("uid-0").waiting == 1


@pytest.mark.parametrize("outcome", list(LeaveOutcome))
def test_a_farewell_that_is_repeated_costs_no_look_at_all_nodes(outcome: LeaveOutcome) -> None:
    driver = formed()
    driver.leave("uid-1", outcome)
    driver.wait(1, beating=("uid-0", "uid-2"))
    due = driver.coordinator.next_deadline()
    again = LeaveRequest(incarnation="a", round=1, outcome=outcome)
    driver.coordinator.leave("uid-1", again, driver.now)
    assert driver.coordinator.next_deadline() == due


def test_a_node_that_left_may_still_say_how_its_work_ended() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.LEFT)
    driver.wait(1, beating=("uid-0", "uid-2"))
    driver.leave("uid-1", LeaveOutcome.FAILED)
    assert driver.beat("uid-0").waiting == 1


def test_a_node_that_leaves_and_joins_again_and_again_is_looked_at_now_and_then() -> None:
    driver = Driver(3, min_nodes=2)
    driver.join("uid-0")
    driver.leave("uid-0", LeaveOutcome.LEFT)
    assert not driver.coordinator.view(driver.now).waiting, "the first is looked at without delay"
    for _ in range(3):
        driver.join("uid-0")
        driver.leave("uid-0", LeaveOutcome.LEFT)
        assert driver.coordinator.next_deadline() == driver.now + SOON
    driver.wait(1)
    assert [driver.formed(waiter).world_size for waiter in driver.join_all("uid-1", "uid-2", "uid-0")] == [3, 3, 3]


def test_a_node_that_left_and_whose_pod_then_succeeds_is_not_lost() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.LEFT)
    driver.set_pods(facts(1, phase=NodePhase.SUCCEEDED))
    driver.wait(30, beating=("uid-0", "uid-2"))
    assert driver.beat("uid-0").waiting == 0
    assert driver.names("NodeLeft")[0].node_state is NodeState.SUCCEEDED


def test_leaving_an_open_round_takes_the_node_out_of_it() -> None:
    driver = Driver(3, min_nodes=2)
    driver.join_all("uid-0", "uid-1")
    driver.leave("uid-1", LeaveOutcome.LEFT)
    assert driver.state() is RunState.WAITING
    assert [node.index for node in driver.coordinator.view(driver.now).waiting] == [0]


def test_a_late_farewell_to_an_old_round_does_not_take_a_node_out_of_the_new_one() -> None:
    driver = formed()
    driver.join_all(*ALL)
    driver.leave("uid-1", LeaveOutcome.LEFT, round=1)
    driver.wait(10, beating=ALL)
    assert driver.beat("uid-0").waiting == 0


def test_farewells_of_another_agent_or_an_unknown_pod_do_nothing() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.FAILED, round=1, incarnation="other")
    driver.leave("uid-9", LeaveOutcome.FAILED, round=1)
    assert driver.beat("uid-0").waiting == 0


def test_a_member_that_has_succeeded_is_not_needed_any_more() -> None:
    driver = formed(3, min_nodes=3, max_nodes=3)
    driver.leave("uid-2", LeaveOutcome.SUCCEEDED)
    driver.wait(30, beating=("uid-0", "uid-1"))
    assert driver.beat("uid-0").waiting == 0
    waiters = [driver.join("uid-0", failure=1), driver.join("uid-1")]
    assert {driver.formed(waiter).world_size for waiter in waiters} == {2}


def test_a_newcomer_does_not_disturb_a_group_that_is_finishing() -> None:
    driver = formed()
    driver.set_pods(facts(3), expected=range(4))
    driver.leave("uid-0", LeaveOutcome.SUCCEEDED)
    waiter = driver.join("uid-3")
    assert driver.beat("uid-1").waiting == 0
    answer = driver.poll_over("uid-3", waiter)
    assert isinstance(answer, JoinWaiting)
    assert "finishing" in answer.message
    driver.leave("uid-1", LeaveOutcome.SUCCEEDED)
    driver.leave("uid-2", LeaveOutcome.SUCCEEDED)
    late = driver.join("uid-3")
    driver.close(CloseReason.SUCCEEDED)
    refusal = driver.refusal(late)
    assert refusal.closed is not None
    assert refusal.closed.reason == "Succeeded"


def test_a_loss_lets_newcomers_in_even_if_a_member_has_succeeded() -> None:
    driver = formed()
    driver.set_pods(facts(3), expected=range(4))
    driver.leave("uid-0", LeaveOutcome.SUCCEEDED)
    newcomer = driver.join("uid-3")
    driver.delete_pods("uid-1")
    driver.set_pods(facts(1, uid="uid-11"))
    waiters = driver.join_all("uid-2", "uid-11")
    assert {driver.formed(waiter).world_size for waiter in (newcomer, *waiters)} == {3}


def test_a_pod_that_fails_after_its_agent_reported_success_is_lost() -> None:
    driver = formed()
    driver.leave("uid-1", LeaveOutcome.SUCCEEDED)
    driver.set_pods(facts(1, phase=NodePhase.FAILED))
    assert driver.beat("uid-0").waiting == 1


# -- worker failures


def test_a_worker_failure_restarts_all_in_place_and_is_charged_once() -> None:
    driver = formed()
    waiters = [driver.join(uid, failure=7) for uid in ALL]
    assert {driver.formed(waiter).round for waiter in waiters} == {2}
    assert driver.coordinator.view(driver.now).worker_failures == 1
    assert driver.stored.failures == 1
    assert "exit code 7" in driver.coordinator.view(driver.now).cause


def test_failures_of_the_survivors_of_a_lost_node_are_not_charged() -> None:
    driver = formed()
    driver.join_all("uid-0", "uid-1", failure=1)
    driver.set_pods(facts(2, phase=NodePhase.FAILED))
    driver.set_pods(facts(2, uid="uid-22"))
    driver.join("uid-22")
    assert driver.coordinator.round == 2
    assert driver.coordinator.view(driver.now).worker_failures == 0


def test_failures_that_follow_a_newcomer_are_not_charged() -> None:
    driver = formed()
    driver.set_pods(facts(3), expected=range(4))
    driver.join("uid-3")
    driver.join_all(*ALL, failure=1)
    assert driver.coordinator.round == 2
    assert driver.coordinator.view(driver.now).worker_failures == 0


def test_one_failure_more_than_allowed_fails_the_run_and_forms_no_round() -> None:
    driver = formed()
    driver.order(max_worker_failures=1)
    driver.join_all(*ALL, failure=1)
    assert driver.coordinator.round == 2
    waiters = driver.join_all(*ALL, failure=3)
    view = driver.coordinator.view(driver.now)
    assert "exit code 3" in view.failed
    assert view.worker_failures == 2
    assert driver.coordinator.round == 2
    assert all(waiter not in driver.answers for waiter in waiters)
    driver.close(CloseReason.FAILED, view.failed)
    refusal = driver.refusal(waiters[0])
    assert refusal.closed is not None
    assert (refusal.closed.reason, refusal.closed.message) == ("Failed", view.failed)


def test_a_failed_run_asks_for_no_further_ticks_of_its_round() -> None:
    driver = formed(2)
    driver.order(max_worker_failures=0)
    driver.join_all("uid-0", "uid-1", failure=1, wait=30)
    driver.wait(100)
    assert driver.coordinator.view(driver.now).failed


# -- identity


def test_a_pod_that_nobody_has_seen_yet_is_asked_to_call_again() -> None:
    driver = Driver(1)
    with pytest.raises(ProtocolError) as refused:
        driver.join("uid-9")
    assert refused.value.code is ErrorCode.UNKNOWN_NODE
    assert refused.value.code.retryable


def test_a_dead_pod_is_refused_for_good_and_recorded_once() -> None:
    driver = formed()
    driver.delete_pods("uid-2")
    for _ in range(3):
        with pytest.raises(ProtocolError) as refused:
            driver.beat("uid-2")
        assert refused.value.code is ErrorCode.FENCED
    assert len(driver.names("StaleCallRefused")) == 1


def test_a_held_call_of_a_pod_that_dies_is_answered() -> None:
    driver = Driver(2)
    waiter = driver.join("uid-0")
    driver.delete_pods("uid-0")
    assert driver.refusal(waiter).code is ErrorCode.FENCED


def test_a_new_agent_in_the_same_pod_replaces_the_old_one_at_once() -> None:
    driver = formed()
    waiter = driver.join("uid-1", incarnation="b")
    assert driver.beat("uid-0").waiting == 1
    with pytest.raises(ProtocolError) as refused:
        driver.beat("uid-1", incarnation="a")
    assert refused.value.code is ErrorCode.FENCED
    driver.join_all("uid-0", "uid-2")
    assert driver.formed(waiter).round == 2
    assert driver.coordinator.view(driver.now).worker_failures == 0


def test_after_a_change_of_the_leader_only_one_agent_of_a_pod_is_left_in_peace() -> None:
    driver = Driver(3, state=formed().stored)
    assert not driver.beat("uid-1", round=1).evicted
    assert driver.beat("uid-1", round=1, incarnation="b").evicted
    assert not driver.beat("uid-1", round=1).evicted


def test_a_replacement_may_join_while_its_predecessor_is_terminating() -> None:
    driver = formed()
    driver.set_pods(facts(1, phase=NodePhase.DRAINING), facts(1, uid="uid-11"))
    waiters = driver.join_all("uid-0", "uid-2", "uid-11")
    assert [driver.formed(waiter).rank for waiter in waiters] == [0, 2, 1]
    assert driver.beat("uid-1").evicted


def test_a_call_that_names_an_old_round_is_told_that_it_is_evicted() -> None:
    driver = formed()
    driver.join_all(*ALL)
    answer = driver.beat("uid-0", round=1)
    assert (answer.evicted, answer.round) == (True, 2)


# -- the endpoint of rank 0


def test_members_learn_where_rank_0_listens() -> None:
    driver = formed()
    early = driver.await_endpoint("uid-1", 1)
    driver.publish("uid-0", 1)
    late = driver.await_endpoint("uid-2", 1)
    assert driver.answers[early] == driver.answers[late] == Endpoint(address="10.0.0.1", port=29500)


def test_a_new_leader_learns_the_endpoint_from_a_heartbeat() -> None:
    driver = Driver(2, state=formed(2).stored)
    waiter = driver.await_endpoint("uid-1", 1)
    driver.beat("uid-0", round=1, port=4242)
    assert driver.answers[waiter] == Endpoint(address="10.0.0.1", port=4242)


def test_only_rank_0_may_say_where_it_listens() -> None:
    driver = formed()
    with pytest.raises(ProtocolError) as refused:
        driver.publish("uid-1", 1)
    assert refused.value.code is ErrorCode.FORBIDDEN


def test_another_agent_of_the_pod_of_rank_0_may_not_say_where_it_listens() -> None:
    driver = formed()
    driver.beat("uid-0")
    with pytest.raises(ProtocolError) as refused:
        driver.publish("uid-0", 1, incarnation="b")
    assert refused.value.code is ErrorCode.STALE_ROUND


def test_a_node_outside_the_round_is_not_told_where_rank_0_listens() -> None:
    driver = formed()
    driver.publish("uid-0", 1)
    driver.set_pods(facts(3))
    with pytest.raises(ProtocolError) as refused:
        driver.await_endpoint("uid-3", 1)
    assert refused.value.code is ErrorCode.STALE_ROUND


def test_a_leader_that_knows_an_older_round_does_not_call_a_newer_one_stale() -> None:
    driver = formed()
    with pytest.raises(ProtocolError) as refused:
        driver.await_endpoint("uid-1", 2)
    assert refused.value.code is ErrorCode.NOT_READY


def test_waiting_for_an_endpoint_ends_when_the_round_is_replaced() -> None:
    driver = formed()
    waiter = driver.await_endpoint("uid-1", 1)
    driver.delete_pods("uid-0")
    assert driver.refusal(waiter).code is ErrorCode.STALE_ROUND
    with pytest.raises(ProtocolError) as refused:
        driver.publish("uid-1", 1)
    assert refused.value.code is ErrorCode.STALE_ROUND


def test_the_endpoint_of_an_old_round_is_not_told_in_the_new_one() -> None:
    driver = formed()
    driver.publish("uid-0", 1)
    driver.join_all(*ALL)
    waiter = driver.await_endpoint("uid-1", 2)
    assert waiter not in driver.answers
    answer = driver.poll_over("uid-1", waiter)
    assert isinstance(answer, ProtocolError)
    assert answer.code is ErrorCode.NOT_READY


# -- closing


def test_the_end_is_told_only_after_it_is_stored() -> None:
    driver = formed()
    waiter = driver.join("uid-0")
    driver.writes_are_held_up = True
    driver.close(CloseReason.SUSPENDED, "by the user")
    assert waiter not in driver.answers
    assert driver.beat("uid-1").closed is None
    driver.finish_write()
    assert driver.stored.closed == "Suspended"
    assert driver.refusal(waiter).code is ErrorCode.CLOSED
    closed = driver.beat("uid-1").closed
    assert closed is not None
    assert (closed.reason, closed.message) == ("Suspended", "by the user")


def test_a_closed_run_never_opens_again() -> None:
    driver = formed()
    driver.close(CloseReason.FAILED)
    driver.order(close=None)
    restored = Driver(3, state=driver.stored)
    for run in (driver, restored):
        with pytest.raises(ProtocolError) as refused:
            run.join("uid-0", round=1)
        assert refused.value.code is ErrorCode.CLOSED
        assert run.state() is RunState.CLOSED


def test_an_order_to_close_waits_for_the_write_that_is_under_way() -> None:
    driver = Driver(2)
    driver.writes_are_held_up = True
    waiters = driver.join_all("uid-0", "uid-1")
    driver.close(CloseReason.DELETED)
    assert len(driver.writes) == 1
    driver.finish_write()
    assert driver.formed(waiters[0]).round == 1
    assert [state.closed for state in driver.writes] == [None, "Deleted"]


def test_trouble_with_the_store_is_shown_until_it_is_over() -> None:
    driver = Driver(1)
    driver.writes_are_held_up = True
    waiter = driver.join("uid-0")
    driver.coordinator.persist_failed("etcd: connection refused")
    assert driver.coordinator.view(driver.now).details == {"storeError": "etcd: connection refused"}
    answer = driver.poll_over("uid-0", waiter)
    assert isinstance(answer, JoinWaiting)
    assert "etcd: connection refused" in answer.message
    driver.finish_write()
    assert driver.coordinator.view(driver.now).details == {}


def test_every_round_is_recorded_once_for_the_run_and_once_for_each_node() -> None:
    driver = formed()
    ranked = driver.names("NodeRanked")
    assert [(record.index, record.rank, record.node_state) for record in ranked] == [
        (index, index, NodeState.RUNNING) for index in range(3)
    ]
    (about_the_run,) = driver.names("RoundFormed")
    assert (about_the_run.index, about_the_run.node_state) == (None, NodeState.RUNNING)
    assert len(driver.names("NodeJoined")) == 3
    told = len(driver.events)
    for _ in range(10):
        driver.beat("uid-0")
    assert len(driver.events) == told
