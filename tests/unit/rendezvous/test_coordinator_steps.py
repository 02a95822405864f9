"""Rounds whose size is a multiple of a step."""

import pytest

from elasticjob.rendezvous.protocol import JoinWaiting
from tests.unit.rendezvous.driver import Driver


def stepping(nodes: int, *, step: int = 2, min_nodes: int = 2) -> Driver:
    driver = Driver(nodes, min_nodes=min_nodes)
    driver.order(step=step, last_call_timeout=5.0, close_timeout=1.0)
    return driver


@pytest.mark.parametrize(
    ("nodes", "joined", "step", "size"), [(4, 4, 2, 4), (4, 3, 2, 2), (8, 7, 4, 4), (6, 5, 3, 3), (4, 4, 1, 4)]
)
def test_a_round_has_whole_steps(nodes: int, joined: int, step: int, size: int) -> None:
    driver = stepping(nodes, step=step, min_nodes=step)
    driver.join_all(*(f"uid-{index}" for index in range(joined)), wait=30.0)
    driver.wait(6)
    view = driver.coordinator.view(driver.now)
    assert [node.index for node in view.participants] == list(range(size))
    assert {node.index for node in view.waiting} == set(range(size, joined))


def test_less_than_a_step_beyond_the_minimum_forms_no_round() -> None:
    driver = stepping(4, min_nodes=4)
    driver.join_all("uid-0", "uid-1", "uid-2", wait=30.0)
    driver.wait(20)
    assert driver.coordinator.round == 0


def test_a_node_that_makes_no_whole_step_disturbs_nobody_and_two_do() -> None:
    driver = stepping(4)
    driver.join_all("uid-0", "uid-1", wait=30.0)
    driver.wait(6, beating=[])
    assert driver.coordinator.round == 1
    third = driver.join("uid-2", wait=30.0)
    assert driver.beat("uid-0").waiting == 0
    assert isinstance(driver.poll_over("uid-2", third), JoinWaiting)
    driver.join_all("uid-2", "uid-3", wait=30.0)
    assert driver.beat("uid-0").waiting >= 1
    driver.join_all("uid-0", "uid-1")
    assert len(driver.coordinator.view(driver.now).participants) == 4
    assert driver.coordinator.round == 2


def test_a_loss_takes_the_group_down_by_a_step_and_the_replacement_brings_it_back() -> None:
    driver = stepping(4)
    driver.join_all("uid-0", "uid-1", "uid-2", "uid-3")
    driver.delete_pods("uid-1")
    driver.join_all("uid-0", "uid-2", "uid-3", wait=30.0)
    driver.wait(10, beating=[])
    view = driver.coordinator.view(driver.now)
    assert [node.index for node in view.participants] == [0, 2]
    assert [node.index for node in view.waiting] == [3]


def test_a_spare_takes_the_place_of_a_lost_member_of_a_group_in_steps() -> None:
    driver = stepping(3)
    driver.join_all("uid-0", "uid-1", "uid-2", wait=30.0)
    assert [node.index for node in driver.coordinator.view(driver.now).participants] == [0, 1]
    driver.delete_pods("uid-0")
    driver.join("uid-1")
    driver.wait(7)
    assert [node.index for node in driver.coordinator.view(driver.now).participants] == [1, 2]
