"""Groups with spare nodes whose size changes."""

import pytest

from elasticjob.rendezvous.protocol import JoinWaiting
from tests.unit.rendezvous.driver import Driver


@pytest.mark.parametrize("order", [("uid-0", "uid-1"), ("uid-1", "uid-0")])
def test_a_group_that_shrinks_lets_go_of_one_who_then_waits_as_a_spare(order: tuple[str, str]) -> None:
    driver = Driver(2, min_nodes=1, max_nodes=2)
    driver.join_all("uid-0", "uid-1")
    assert driver.coordinator.round == 1
    driver.order(max_nodes=1, expected=frozenset({0}))
    assert driver.beat("uid-0").waiting >= 1
    driver.order(expected=frozenset({0, 1}))
    waiters = {uid: driver.join(uid) for uid in order}
    assert driver.formed(waiters["uid-0"]).world_size == 1
    assert isinstance(driver.poll_over("uid-1", waiters["uid-1"]), JoinWaiting)
    assert driver.beat("uid-0").waiting == 0
