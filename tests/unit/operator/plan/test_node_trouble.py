"""Machines that go: lost without notice, or drained while there is time."""

from dataclasses import replace

import pytest

from elasticjob.operator.plan import DeletePod
from elasticjob.rendezvous.orders import NodePhase, RunOrders, RunState
from tests.unit.operator.world import World, running


def lose_machine(world: World, index: int) -> None:
    """The node controller finds that a machine does not report."""
    world.pod(index)["status"]["conditions"] = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False", "lastTransitionTime": world.now.strftime("%Y-%m-%dT%H:%M:%SZ")},
    ]


def announce(world: World, index: int, reason: str = "EvictionByEvictionAPI") -> None:
    """The API says that a pod is to go; it still runs."""
    conditions = world.pod(index)["status"]["conditions"]
    conditions.append({"type": "DisruptionTarget", "status": "True", "reason": reason})


def orders_of(world: World) -> RunOrders:
    orders = world.plan().orders
    assert orders is not None
    return orders


def phases(world: World) -> dict[str, NodePhase]:
    return {node.pod: node.phase for node in orders_of(world).nodes.values()}


def test_a_pod_is_replaced_once_neither_its_machine_nor_its_agent_reports() -> None:
    world = running(3, minReplicas=2, restartPolicy={"maxRestarts": 0})
    lose_machine(world, 1)
    world.wait(0, 2, state=RunState.LAST_CALL)
    plan = world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0"]
    assert plan.requeue_after == 15.0
    world.later(15)
    plan = world.step()
    assert plan.charge_first
    assert [action.grace for action in plan.actions if isinstance(action, DeletePod)] == [None]
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-1-1", "digits-2-0"]
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    assert world.entry(1)["lastFailure"]["reason"] == "NodeLost"


def test_the_old_pod_of_a_lost_machine_is_fenced_and_the_group_never_has_too_many() -> None:
    world = running(3, minReplicas=2, maxReplicas=3)
    lose_machine(world, 1)
    world.wait(0, 2, state=RunState.LAST_CALL)
    world.later(15)
    world.settle()
    old = next(node for node in orders_of(world).nodes.values() if node.pod == "digits-1-0")
    assert (old.phase, old.reason) == (NodePhase.FAILED, "NodeLost")
    alive = [node for node in orders_of(world).nodes.values() if node.phase is NodePhase.ALIVE]
    assert sorted(node.index for node in alive) == [0, 1, 2]
    world.later(600)
    world.settle()
    assert world.created.count("digits-1-1") == 1
    assert "digits-1-2" not in world.created
    del world.pods["digits-1-0"]
    world.settle()
    assert "digits-1-0" not in phases(world)
    assert world.status["restarts"]["disruptions"] == 1


def test_a_machine_that_does_not_report_but_works_is_left_alone() -> None:
    world = running(3, minReplicas=2)
    lose_machine(world, 1)
    world.later(600)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0"]
    assert world.status["phase"] == "Running"


@pytest.mark.parametrize("held", [True, False])
def test_nobody_is_lost_while_the_rendezvous_cannot_tell_whom_it_hears(held: bool) -> None:
    world = running(3, minReplicas=2)
    lose_machine(world, 1)
    assert world.view is not None
    world.view = replace(world.view, held=True, state=RunState.REFORMING) if held else None
    world.later(600)
    world.settle()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0"]


def test_a_pod_that_terminates_for_ever_is_replaced_once_and_never_by_force() -> None:
    world = running(3, maxReplicas=3)
    world.mark_deleted(1)
    world.settle()
    world.later(3600)
    plan = world.settle()
    assert plan.actions == ()
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-1-1", "digits-2-0"]
    assert phases(world)["digits-1-0"] is NodePhase.DRAINING
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}


def test_an_announced_disruption_drains_the_node_while_it_still_runs() -> None:
    world = running(3, minReplicas=2)
    announce(world, 1)
    orders = orders_of(world)
    facts = {node.pod: node for node in orders.nodes.values()}
    assert (facts["digits-1-0"].phase, facts["digits-1-0"].reason) == (NodePhase.DRAINING, "EvictionByEvictionAPI")
    assert orders.expected == {0, 2}
    assert world.settle().actions == ()
    assert world.status["restarts"]["disruptions"] == 0


def test_a_drain_is_a_planned_change_in_the_history_with_its_cause() -> None:
    world = running(3, minReplicas=2)
    announce(world, 1)
    world.mark_deleted(1)
    world.settle()
    world.form(0, 2, cause="node 1 (digits-1-0): its pod drains (EvictionByEvictionAPI)")
    world.settle()
    last = world.status["history"][-1]
    assert last["planned"] is True
    assert (last["from"], last["to"], last["node"]) == (3, 2, "digits-1")
    assert last["cause"].endswith("its pod drains (EvictionByEvictionAPI)")
    assert world.status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}


def test_a_node_that_fails_while_another_drains_makes_the_change_unplanned() -> None:
    world = running(3, minReplicas=1)
    world.mark_deleted(1)
    world.settle()
    world.exit(2, 1)
    world.settle()
    world.form(0)
    world.settle()
    assert world.status["history"][-1]["planned"] is False


def test_a_machine_that_is_lost_is_no_planned_change() -> None:
    world = running(3, minReplicas=2)
    lose_machine(world, 1)
    world.wait(0, 2, state=RunState.LAST_CALL)
    world.later(15)
    world.settle()
    world.form(0, 2)
    world.settle()
    assert world.status["history"][-1]["planned"] is False


def test_an_eviction_from_a_machine_that_is_gone_is_no_planned_change() -> None:
    world = running(3, minReplicas=2)
    lose_machine(world, 1)
    announce(world, 1, "DeletionByTaintManager")
    world.mark_deleted(1)
    world.settle()
    world.form(0, 2)
    world.settle()
    assert world.status["history"][-1]["planned"] is False


def test_the_user_chooses_who_leaves_first() -> None:
    world = running(4, minReplicas=1)
    world.pod(1)["metadata"]["annotations"]["elasticjob.dev/leave-first"] = "true"
    world.spec(replicas=3)
    world.settle()
    assert world.status["ledger"]["indexes"] == "0,2-3"
    assert world.status["restarts"] == {"failures": 0, "disruptions": 0, "resizes": 1}
    assert orders_of(world).expected == {0, 2, 3}
