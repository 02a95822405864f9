"""Jobs with spare nodes."""

from dataclasses import replace

from elasticjob.rendezvous.orders import RunOrders
from tests.unit.operator.world import World


def with_spare(**spec: int) -> World:
    """Two of three nodes train, the third waits."""
    world = World(replicas=2, spares=1, **spec)
    world.settle()
    world.run(0, 1, 2)
    world.form(0, 1)
    assert world.view is not None
    world.view = replace(world.view, waiting=(world.node(2, None),))
    world.settle()
    return world


def orders_of(world: World) -> RunOrders:
    orders = world.plan().orders
    assert orders is not None
    return orders


def test_a_spare_has_a_pod_and_no_place() -> None:
    world = with_spare(maxReplicas=8)
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0"]
    assert orders_of(world).max_nodes == 2
    assert orders_of(world).expected == {0, 1, 2}


def test_a_job_whose_spares_wait_is_settled() -> None:
    world = with_spare()
    assert world.status["size"] == "2/2"
    assert (world.condition("Ready")["status"], world.condition("Reconciling")["status"]) == ("True", "False")
    assert world.condition("Ready")["message"] == "round 1 trains on 2 of 2 nodes"
    assert (world.entry(2)["state"], world.entry(2)["reason"]) == ("INIT", "Spare")


def test_the_replacement_of_a_lost_member_is_the_next_spare() -> None:
    world = with_spare()
    world.exit(0, 1)
    world.settle()
    assert world.names() == ["digits-0-1", "digits-1-0", "digits-2-0"]
    assert orders_of(world).expected == {0, 1, 2}
    world.form(1, 2, waiting=())
    world.settle()
    assert world.status["size"] == "2/2"
    assert world.condition("Reconciling")["status"] == "False"


def test_a_job_that_shrinks_keeps_its_spares_and_its_group_lets_go_of_one() -> None:
    world = with_spare(minReplicas=1)
    world.spec(replicas=1)
    world.settle()
    assert world.status["ledger"]["indexes"] == "0-1"
    assert orders_of(world).max_nodes == 1
    assert orders_of(world).expected == {0}
    world.wait(0)
    assert orders_of(world).expected == {0, 1}


def test_a_job_succeeds_with_its_group_whatever_its_spares_do() -> None:
    world = with_spare()
    world.exit(0)
    world.exit(1)
    world.settle()
    assert world.status["phase"] == "Succeeded"


def test_a_member_that_has_succeeded_takes_no_place_from_the_others() -> None:
    world = with_spare()
    world.exit(0)
    world.settle()
    assert orders_of(world).expected == {1, 2}


def test_autoscalers_see_the_wanted_nodes_alone() -> None:
    world = with_spare()
    assert (world.status["replicas"], world.status["readyReplicas"]) == (2, 2)
    world.vanish(2)
    world.vanish(1)
    world.step()
    assert world.status["replicas"] == 1
