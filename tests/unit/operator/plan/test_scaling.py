"""The number of nodes follows spec.replicas; who stays is left alone."""

import pytest

from elasticjob.operator.plan import CreatePod, DeletePod
from elasticjob.rendezvous.orders import NodePhase
from tests.unit.operator.world import World, running


def uids(world: World) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}


def test_growing_adds_the_missing_indexes() -> None:
    world = running(2, maxReplicas=8)
    before = uids(world)
    world.spec(replicas=4)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0", "digits-3-0"]
    assert before.items() <= uids(world).items()
    assert world.status["restarts"]["resizes"] == 1


def test_shrinking_by_one_removes_exactly_the_highest_index() -> None:
    world = running(10, minReplicas=2, maxReplicas=12)
    before = uids(world)
    world.spec(replicas=9)
    plan = world.step()
    assert [action.name for action in plan.actions if isinstance(action, DeletePod)] == ["digits-9-0"]
    assert not any(isinstance(action, CreatePod) for action in plan.actions)
    del before["digits-9-0"]
    del world.pods["digits-9-0"]
    world.settle()
    assert uids(world) == before
    assert world.status["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 1}


def test_a_node_that_is_to_leave_is_drained_before_and_while_it_is_deleted() -> None:
    world = running(3, minReplicas=1)
    world.spec(replicas=2)
    orders = world.step().orders
    assert orders is not None
    assert orders.expected == {0, 1}
    assert {node.index: node.phase for node in orders.nodes.values()}[2] is NodePhase.DRAINING
    assert orders.nodes[world.pods["digits-2-0"]["metadata"]["uid"]].reason == "ScaledDown"
    again = world.plan().orders
    assert again is not None
    assert {node.index: node.phase for node in again.nodes.values()}[2] is NodePhase.DRAINING


def test_nodes_that_do_not_train_leave_first_and_survivors_keep_their_index() -> None:
    world = running(4, minReplicas=2)
    world.form(0, 2, 3)
    world.settle()
    world.spec(replicas=3)
    world.settle()
    assert world.status["ledger"]["indexes"] == "0,2-3"
    world.vanish(1)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-2-0", "digits-3-0"]
    orders = world.plan().orders
    assert orders is not None
    assert orders.expected == {0, 2, 3}


def test_a_freed_index_is_used_again_under_a_new_pod_name() -> None:
    world = running(3, minReplicas=1)
    world.spec(replicas=2)
    world.settle()
    world.spec(replicas=3)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0", "digits-2-1"]
    assert world.status["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 2}


def test_the_exit_code_of_a_node_that_was_told_to_leave_counts_for_nothing() -> None:
    world = running(3, minReplicas=1, restartPolicy={"maxRestarts": 0})
    world.spec(replicas=2)
    world.settle()
    world.exit(2, 1)
    world.settle()
    assert world.status["restarts"]["failures"] == 0
    assert world.condition("Failed")["status"] == "False"


def test_two_changes_of_the_size_at_once_are_one() -> None:
    world = running(4, minReplicas=1)
    world.spec(replicas=2)
    world.spec(replicas=3)
    world.settle()
    assert world.status["restarts"]["resizes"] == 1
    assert world.status["ledger"]["indexes"] == "0-2"


def test_limits_follow_the_size_when_the_user_names_none() -> None:
    world = running(2)
    world.spec(replicas=5)
    orders = world.plan().orders
    assert orders is not None
    assert (orders.min_nodes, orders.max_nodes) == (5, 5)


def test_autoscalers_see_the_pods_of_this_job_alone() -> None:
    world = running(3)
    assert world.status["replicas"] == 3
    assert world.status["readyReplicas"] == 3
    assert world.status["selector"] == "elasticjob.dev/job-uid=0b6a5d1e-0000-4000-8000-000000000001"


def test_a_change_of_the_size_is_told() -> None:
    world = running(2)
    world.spec(replicas=4)
    world.settle()
    assert [event.message for event in world.events if event.reason == "Scaled"] == ["from 2 to 4 nodes"]


@pytest.mark.parametrize("replicas", [1, 3, 9])
def test_a_change_of_the_size_is_planned_in_the_history(replicas: int) -> None:
    world = running(4, minReplicas=1)
    world.spec(replicas=replicas)
    world.settle()
    world.run(*range(replicas))
    world.form(*range(replicas), cause="resized")
    world.settle()
    last = world.status["history"][-1]
    assert (last["from"], last["to"], last["planned"], last["cause"]) == (4, replicas, True, "resized")
