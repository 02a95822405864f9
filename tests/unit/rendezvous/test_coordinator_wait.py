"""How long a group waits for nodes that are missing."""

import pytest

from elasticjob.rendezvous.orders import RunState
from tests.unit.rendezvous.driver import Driver, facts

WAIT, LAST_CALL = 60.0, 5.0


def patient(nodes: int = 4, *, min_nodes: int = 2, wait_for_all: float = WAIT) -> Driver:
    driver = Driver(nodes, min_nodes=min_nodes)
    driver.order(wait_for_all=wait_for_all, last_call_timeout=LAST_CALL, close_timeout=1.0)
    return driver


def join_and_wait(driver: Driver, *uids: str, seconds: float) -> None:
    """These nodes ask again and again for so many seconds, as agents do whose calls have ended."""
    end = driver.now + seconds
    while driver.now < end and driver.state() is not RunState.FORMED:
        driver.join_all(*uids)
        driver.wait(min(5.0, end - driver.now))


def test_the_first_round_waits_for_all_nodes() -> None:
    driver = patient()
    join_and_wait(driver, "uid-0", "uid-1", seconds=WAIT - 1)
    assert driver.state() is RunState.LAST_CALL
    join_and_wait(driver, "uid-0", "uid-1", "uid-2", "uid-3", seconds=0.5)
    assert len(driver.coordinator.view(driver.now).participants) == 4


def test_after_the_wait_the_minimum_is_enough() -> None:
    driver = patient()
    join_and_wait(driver, "uid-0", "uid-1", seconds=WAIT + 1)
    assert [node.index for node in driver.coordinator.view(driver.now).participants] == [0, 1]


def test_the_wait_begins_when_the_minimum_is_in_and_anew_when_it_was_lost() -> None:
    driver = patient()
    join_and_wait(driver, "uid-0", seconds=WAIT)
    join_and_wait(driver, "uid-0", "uid-1", seconds=WAIT / 2)
    driver.delete_pods("uid-1")
    join_and_wait(driver, "uid-0", "uid-2", seconds=WAIT - 1)
    assert driver.coordinator.round == 0
    join_and_wait(driver, "uid-0", "uid-2", seconds=2)
    assert driver.coordinator.round == 1


def test_the_view_says_how_long_it_waits() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1")
    view = driver.coordinator.view(driver.now)
    assert (view.begins_anew, view.deadline_seconds) == (True, WAIT)


@pytest.mark.parametrize("wait_for_all", [0.0, LAST_CALL - 1])
def test_a_last_call_that_is_longer_lasts_its_time(wait_for_all: float) -> None:
    driver = patient(wait_for_all=wait_for_all)
    driver.join_all("uid-0", "uid-1")
    assert driver.coordinator.view(driver.now).deadline_seconds == LAST_CALL


def test_survivors_wait_for_the_last_call_alone() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-3")
    driver.join_all("uid-0", "uid-1", "uid-2")
    view = driver.coordinator.view(driver.now)
    assert (view.begins_anew, view.deadline_seconds) == (False, LAST_CALL)


def test_a_group_that_was_lost_whole_waits_again() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.order(nodes={f"new-{index}": facts(index, uid=f"new-{index}") for index in range(4)})
    driver.join_all("new-0", "new-1")
    view = driver.coordinator.view(driver.now)
    assert (view.begins_anew, view.deadline_seconds) == (True, WAIT)


def test_a_wait_that_is_given_up_ends_at_once() -> None:
    driver = patient()
    join_and_wait(driver, "uid-0", "uid-1", seconds=LAST_CALL + 1)
    driver.order(wait_for_all=0.0)
    driver.tick()
    assert driver.coordinator.round == 1


def test_a_group_that_trains_does_not_begin_anew() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    assert not driver.coordinator.view(driver.now).begins_anew


def test_survivors_do_not_wait_for_a_node_that_cannot_come() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-3")
    driver.order(unable=frozenset({3}))
    driver.join_all("uid-0", "uid-1", "uid-2")
    assert [node.index for node in driver.coordinator.view(driver.now).participants] == [0, 1, 2]
    assert driver.state() is RunState.FORMED


def test_it_is_met_in_one_more_round_when_it_can_come() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-3")
    driver.order(unable=frozenset({3}))
    driver.join_all("uid-0", "uid-1", "uid-2")
    driver.order(unable=frozenset())
    driver.set_pods(facts(3, uid="new-3"))
    driver.join_all("new-3", "uid-0", "uid-1", "uid-2")
    view = driver.coordinator.view(driver.now)
    assert (view.round, len(view.participants)) == (3, 4)


def test_survivors_stop_waiting_when_it_turns_out_that_a_node_cannot_come() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-3")
    driver.join_all("uid-0", "uid-1", "uid-2")
    assert driver.state() is RunState.LAST_CALL
    driver.order(unable=frozenset({3}))
    assert driver.state() is RunState.FORMED


def test_a_member_that_has_yet_to_stop_its_workers_is_waited_for_whatever_its_pod_shows() -> None:
    driver = patient()
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-3")
    driver.order(unable=frozenset({2, 3}))
    driver.join_all("uid-0", "uid-1")
    assert driver.state() is not RunState.FORMED
    driver.join_all("uid-0", "uid-1", "uid-2")
    assert len(driver.coordinator.view(driver.now).participants) == 3


def test_a_group_that_begins_anew_waits_for_nodes_that_cannot_come_yet() -> None:
    driver = patient()
    driver.order(unable=frozenset({2, 3}))
    driver.join_all("uid-0", "uid-1")
    view = driver.coordinator.view(driver.now)
    assert (view.state, view.deadline_seconds) == (RunState.LAST_CALL, WAIT)
