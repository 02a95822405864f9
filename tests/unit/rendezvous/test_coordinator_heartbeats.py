"""Heartbeats that are held: who is told what, and when."""

from elasticjob.rendezvous.orders import CloseReason, NodePhase
from elasticjob.rendezvous.protocol import ErrorCode, LeaveOutcome

from .driver import Driver, facts

ALL = ("uid-0", "uid-1", "uid-2")


def formed() -> Driver:
    driver = Driver(3)
    driver.join_all(*ALL)
    assert driver.coordinator.round == 1
    return driver


def test_survivors_hear_of_a_lost_pod_at_once_and_the_dead_are_refused() -> None:
    driver = formed()
    first, second, third = (driver.hold_beat(uid) for uid in ALL)
    driver.delete_pods("uid-2")
    assert driver.told(first).waiting == driver.told(second).waiting == 1
    assert driver.refusal(third).code is ErrorCode.FENCED


def test_a_node_that_misses_a_keep_alive_is_shown_as_silent_until_it_calls() -> None:
    driver = Driver(2)
    driver.join_all("uid-0", "uid-1")

    def silent() -> list[int]:
        return [node.index for node in driver.coordinator.view(driver.now).participants if node.silent]

    for _ in range(9):
        driver.wait(1)
        driver.beat("uid-0")
    assert silent() == []
    driver.wait(1)
    assert silent() == [1]
    driver.beat("uid-1")
    driver.beat("uid-0")
    driver.wait(5)
    assert silent() == []


def test_a_pod_that_drains_is_told_with_the_others() -> None:
    driver = formed()
    first, third = driver.hold_beat("uid-0"), driver.hold_beat("uid-2")
    driver.set_pods(facts(2, phase=NodePhase.DRAINING), expected=(0, 1))
    assert driver.told(first).waiting == 1
    assert driver.told(third).evicted


def test_members_hear_of_a_newcomer_at_once() -> None:
    driver = formed()
    held = driver.hold_beat("uid-0")
    driver.set_pods(facts(3), expected=range(4))
    assert held not in driver.answers
    driver.join("uid-3")
    assert driver.told(held).waiting == 1


def test_the_end_is_told_once_it_is_stored() -> None:
    driver = formed()
    held = driver.hold_beat("uid-0")
    driver.writes_are_held_up = True
    driver.close(CloseReason.SUSPENDED, "by the user")
    assert held not in driver.answers
    driver.finish_write()
    closed = driver.told(held).closed
    assert closed is not None
    assert (closed.reason, closed.message) == ("Suspended", "by the user")


def test_what_does_not_concern_the_members_releases_nobody() -> None:
    driver = formed()
    held = driver.hold_beat("uid-0")
    driver.set_pods(facts(2, reason="looked at"))
    driver.order(join_timeout=5.0)
    driver.leave("uid-1", LeaveOutcome.SUCCEEDED)
    driver.set_pods(facts(1, phase=NodePhase.SUCCEEDED))
    assert held not in driver.answers


def test_a_member_that_succeeded_while_it_was_held_gets_its_final_answer() -> None:
    driver = formed()
    held = driver.hold_beat("uid-1")
    driver.set_pods(facts(1, phase=NodePhase.SUCCEEDED))
    assert driver.refusal(held).code is ErrorCode.FENCED


def test_a_newer_call_of_the_same_node_takes_the_place_of_the_held_one() -> None:
    driver = formed()
    first = driver.hold_beat("uid-0")
    second = driver.hold_beat("uid-0")
    assert driver.told(first).tells_nothing
    driver.leave("uid-0", LeaveOutcome.SUCCEEDED)
    assert driver.told(second).tells_nothing


def test_a_held_heartbeat_ends_in_its_time_or_with_its_caller() -> None:
    driver = formed()
    held = driver.hold_beat("uid-0")
    answer = driver.poll_over("uid-0", held)
    assert answer == driver.beat("uid-0")
    hung_up = driver.hold_beat("uid-0")
    driver.hang_up("uid-0", hung_up)
    driver.delete_pods("uid-2")
    assert hung_up not in driver.answers


def test_a_node_whose_heartbeat_is_held_is_alive_and_liveness_counts_from_its_arrival() -> None:
    driver = formed()
    for uid in ALL:
        driver.hold_beat(uid)
    driver.wait(driver.coordinator.longest_hold)
    first = driver.hold_beat("uid-0")
    driver.hold_beat("uid-1")
    driver.wait(9.9)
    assert first not in driver.answers
    driver.hold_beat("uid-0")
    driver.wait(0.2)
    assert driver.beat("uid-1").waiting == 1
    assert "node 2" in driver.coordinator.view(driver.now).cause


def test_no_heartbeat_is_held_until_the_node_would_count_as_lost() -> None:
    driver = Driver(1)
    driver.order(keep_alive_interval=60.0, keep_alive_max_attempt=3)
    assert driver.coordinator.longest_hold == 30.0
    driver.order(keep_alive_interval=4.0, keep_alive_max_attempt=1)
    assert driver.coordinator.longest_hold == 2.0
