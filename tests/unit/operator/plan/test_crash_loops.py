"""Nodes that end again and again, and where their replacements go."""

from typing import Any

from elasticjob.operator.model.stamps import format_time
from elasticjob.operator.plan import CreatePod
from tests.unit.operator.world import World, running, template

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def fail_after(world: World, seconds: float, index: int = 1, **status: Any) -> None:
    """The newest pod of a node is made, trains with the others, and fails some time later."""
    world.pod(index)["metadata"]["creationTimestamp"] = format_time(world.now)
    world.run(index)
    world.form(*range(int(world.body["spec"]["replicas"])))
    world.settle()
    world.later(seconds)
    world.exit(index, 1, **status)


def pause(world: World) -> float:
    """Settle, and wait for the pause that there is."""
    seconds = world.settle().requeue_after or 0.0
    world.later(seconds)
    world.settle()
    return seconds


def avoided(pod: dict[str, Any]) -> list[str]:
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])
    return [term["preference"]["matchFields"][0]["values"][0] for term in terms if "matchFields" in term["preference"]]


def test_a_crash_loop_is_slowed_down_although_rounds_form_in_between() -> None:
    world = running(2, restartPolicy={"maxRestarts": 100})
    pauses = []
    for _ in range(9):
        fail_after(world, 3)
        pauses.append(pause(world))
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_loop_of_evictions_is_slowed_down_as_well() -> None:
    world = running(2, restartPolicy={"maxRestarts": 0})
    pauses = []
    for _ in range(4):
        fail_after(world, 3, reason="Evicted")
        pauses.append(pause(world))
    assert pauses == [0, 1, 2, 4]


def test_a_node_that_worked_for_a_while_is_forgiven() -> None:
    world = running(2, restartPolicy={"maxRestarts": 100})
    for _ in range(3):
        fail_after(world, 3)
        pause(world)
    fail_after(world, 600)
    assert pause(world) == 0
    assert "quickEnds" not in world.status["ledger"]


def test_other_nodes_do_not_rest_with_it() -> None:
    world = running(3, restartPolicy={"maxRestarts": 100})
    for _ in range(3):
        fail_after(world, 3)
        pause(world)
    fail_after(world, 3)
    world.exit(2, 1)
    assert [action.index for action in world.step().actions if isinstance(action, CreatePod)] == [2]


def test_the_node_says_until_when_it_rests() -> None:
    world = running(2, restartPolicy={"maxRestarts": 100})
    for _ in range(3):
        fail_after(world, 3, message="ValueError: no data")
        pause(world)
    fail_after(world, 3, why="Error", message="ValueError: no data")
    world.settle()
    until = format_time(world.now)[:-3] + f"{world.now.second + 4:02d}Z"
    entry = world.entry(1)
    assert entry["message"] == f"rests until {until}, since it ended 4 times in a row; ValueError: no data"
    assert (entry["reason"], entry["exitCode"]) == ("Error", 1)
    world.wait(0)
    world.settle()
    assert f"digits-1 rests until {until}" in world.condition("Ready")["message"]


def test_a_replacement_prefers_other_machines_and_keeps_what_the_user_wants() -> None:
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    users = {"nodeAffinity": {PREFERRED: [term]}}
    world = running(2, template=template(affinity=users))
    assert world.pod(1)["spec"]["affinity"] == users
    world.pod(1)["spec"]["nodeName"] = "machine-7"
    world.exit(1, 1)
    world.settle()
    assert world.pod(1)["spec"]["affinity"]["nodeAffinity"][PREFERRED][0] == term
    assert avoided(world.pod(1)) == ["machine-7"]


def test_a_pod_that_never_had_a_predecessor_avoids_nobody() -> None:
    world = running(2)
    world.pod(1)["spec"]["nodeName"] = "machine-7"
    world.exit(1, 1)
    world.settle()
    world.spec(replicas=3)
    world.settle()
    assert avoided(world.pod(2)) == []


def test_a_machine_is_not_blamed_for_a_pod_that_somebody_deleted() -> None:
    world = running(2)
    world.pod(1)["spec"]["nodeName"] = "machine-7"
    world.mark_deleted(1)
    world.settle()
    assert avoided(world.pods["digits-1-1"]) == []


def test_machines_cool_down_by_count() -> None:
    world = running(2, restartPolicy={"maxRestarts": 100})
    for number in range(7):
        world.pod(1)["spec"]["nodeName"] = f"machine-{number}"
        fail_after(world, 600)
        world.settle()
    assert avoided(world.pod(1)) == [f"machine-{number}" for number in (6, 5, 4, 3, 2)]
