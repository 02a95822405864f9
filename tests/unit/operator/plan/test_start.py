"""A job from its creation to its first round."""

import copy

from elasticjob.operator.plan import CreatePod, CreateService
from elasticjob.rendezvous.orders import NodePhase, RunState
from tests.unit.operator.world import World, running


def test_a_new_job_gets_its_service_and_its_pods() -> None:
    world = World(replicas=3)
    plan = world.step()
    assert [type(action) for action in plan.actions] == [CreateService, CreatePod, CreatePod, CreatePod]
    assert world.names() == ["digits-0-0", "digits-1-0", "digits-2-0"]


def test_the_chosen_nodes_are_stored_before_any_pod_is_created() -> None:
    plan = World().plan()
    assert plan.charge_first
    assert plan.status is not None
    assert plan.status["ledger"] == {"indexes": "0-1"}


def test_all_conditions_are_there_from_the_first_moment() -> None:
    world = World()
    world.step()
    states = {one["type"]: one["status"] for one in world.status["conditions"]}
    assert states == {
        "Ready": "False",
        "Reconciling": "True",
        "Stalled": "False",
        "Succeeded": "False",
        "Failed": "False",
        "Suspended": "False",
        "RendezvousReady": "False",
    }
    assert world.status["phase"] == "Pending"
    assert world.status["size"] == "0/2"


def test_the_orders_expect_all_nodes_and_name_their_pods() -> None:
    world = World(minReplicas=1, maxReplicas=4, waitForReplicasSeconds=90)
    world.settle()
    orders = world.plan().orders
    assert orders is not None
    assert orders.wait_for_all == 90.0
    assert (orders.min_nodes, orders.max_nodes) == (1, 4)
    assert orders.expected == {0, 1}
    assert {facts.pod: facts.phase for facts in orders.nodes.values()} == {
        "digits-0-0": NodePhase.ALIVE,
        "digits-1-0": NodePhase.ALIVE,
    }
    assert orders.max_worker_failures == 3


def test_while_nodes_are_missing_the_message_says_which_and_why() -> None:
    world = World(minReplicas=2)
    world.settle()
    world.run(0)
    world.wait(0)
    message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    world.pod(1)["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}],
    }
    world.settle()
    ready = world.condition("Ready")
    assert ready["reason"] == "Unschedulable"
    assert ready["message"] == (
        f"1 of 2 joined (min 2). digits-1 is Pending: {message} "
        "No round can form as things are: 2 needed, and only 1 node can come."
    )
    assert world.status["phase"] == "Forming"
    assert world.status["size"] == "1/2"
    assert world.entry(1)["reason"] == "Unschedulable"


def test_a_formed_round_makes_the_job_ready() -> None:
    world = running(2)
    assert world.status["phase"] == "Running"
    assert world.status["size"] == "2/2"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Reconciling")["status"] == "False"
    assert world.condition("RendezvousReady")["status"] == "True"
    assert [(node["state"], node["rank"], node["round"]) for node in world.status["nodes"]] == [
        ("RUNNING", 0, 1),
        ("RUNNING", 1, 1),
    ]
    assert world.status["rendezvous"]["members"] == "0-1"
    assert [entry["round"] for entry in world.status["history"]] == [1]


def test_a_job_at_idle_is_not_written() -> None:
    world = running(2)
    world.later(3600)
    plan = world.plan()
    assert plan.status is None
    assert plan.actions == ()
    assert plan.events == ()
    assert plan.requeue_after is None


def test_a_running_deadline_is_not_a_change() -> None:
    world = World()
    world.settle()
    world.run(0)
    world.wait(0, state=RunState.LAST_CALL, deadline_seconds=30.0)
    world.settle()
    writes = world.status_writes
    world.later(10)
    world.wait(0, state=RunState.LAST_CALL, deadline_seconds=20.0)
    world.settle()
    assert world.status_writes == writes


def test_the_start_is_told_once() -> None:
    world = running(2)
    assert world.reasons().count("JobStarted") == 1


def test_a_restarted_operator_that_does_not_serve_the_run_yet_does_not_say_that_training_stopped() -> None:
    world = running(2)
    world.view = None
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("RendezvousReady")["status"] == "Unknown"
    assert world.status["phase"] == "Running"
    assert world.status["size"] == "2/2"
    assert world.status["rendezvous"]["round"] == 1


def test_planning_changes_nothing_that_it_was_given() -> None:
    world = running(3, minReplicas=1)
    world.exit(1, 1)
    body, pods = copy.deepcopy(world.body), copy.deepcopy(world.pods)
    world.plan()
    assert (world.body, world.pods) == (body, pods)
