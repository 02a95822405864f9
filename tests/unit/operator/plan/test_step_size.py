"""Jobs whose groups have whole steps."""

from tests.unit.operator.world import World, running


def test_the_size_is_rounded_down_and_the_condition_says_so() -> None:
    world = World(replicas=7, minReplicas=2, stepSize=2)
    world.settle()
    assert len(world.pods) == 6
    orders = world.plan().orders
    assert orders is not None
    assert (orders.step, orders.min_nodes, orders.max_nodes) == (2, 2, 6)
    words = "spec.replicas (7) is rounded down to 6 (stepSize 2)"
    assert world.condition("Ready")["message"].endswith(f"{words}.")
    world.run(*range(6))
    world.form(*range(6))
    world.settle()
    assert world.status["size"] == "6/6"
    assert world.condition("Ready")["message"] == f"round 1 trains on 6 of 6 nodes; {words}"


def test_a_size_of_whole_steps_is_not_mentioned() -> None:
    world = running(4, stepSize=2)
    assert world.condition("Ready")["message"] == "round 1 trains on 4 of 4 nodes"


def test_scaling_within_a_step_changes_nothing() -> None:
    world = running(4, minReplicas=2, stepSize=2)
    world.spec(replicas=5)
    assert world.plan().actions == ()
    world.spec(replicas=6)
    world.settle()
    assert world.status["ledger"]["indexes"] == "0-5"
