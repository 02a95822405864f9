"""A status stays small whatever happens, and its counts stay exact."""

import json
from typing import Any

import pytest

from elasticjob.operator.model.texts import stored_size
from tests.unit.operator.world import World, running

TRACE = "Traceback (most recent call last): " + "x" * 65_536
LONGEST_STATUS = 512 * 1024


def large(count: int) -> World:
    return running(count, minReplicas=1)


def test_up_to_two_hundred_nodes_are_all_shown() -> None:
    world = large(200)
    assert len(world.status["nodes"]) == 200
    assert world.status["nodeCounts"]["omitted"] == 0


def test_of_more_nodes_those_are_shown_that_a_person_would_look_for() -> None:
    world = large(300)
    world.exit(250, 1)
    world.exit(299, 1)
    world.step()
    shown = {node["index"]: node["state"] for node in world.status["nodes"]}
    assert len(shown) == 200
    assert shown[250] == shown[299] == "FAILED"
    assert world.status["nodeCounts"] == {
        "total": 300,
        "init": 0,
        "running": 298,
        "succeeded": 0,
        "failed": 2,
        "omitted": 100,
    }


def test_a_large_job_at_idle_is_not_written() -> None:
    world = large(300)
    world.exit(250, 1)
    world.settle()
    world.later(600)
    assert world.plan().status is None


def test_three_thousand_nodes_that_all_failed_with_long_traces_fit_an_object() -> None:
    world = World(replicas=3000, minReplicas=1)
    world.step()
    world.run(*range(3000))
    world.form(*range(3000))
    for index in range(3000):
        world.exit(index, 1, message=TRACE)
    world.step()
    assert len(json.dumps(world.status)) < LONGEST_STATUS
    assert world.status["restarts"]["failures"] == 1
    assert world.status["ledger"]["ended"] == "0-2999:1"
    assert len(world.names()) == 3000


@pytest.mark.parametrize("text", ["\x01", "<module>", "\U0001f600", '"\\'])
def test_no_text_makes_the_nodes_outgrow_an_object(text: str) -> None:
    world = large(200)
    for index in range(200):
        world.exit(index, 1, message=text * 65_536)
    world.settle()
    world.later(3600)
    world.settle()
    for index in range(200):
        world.pod(index)["status"] = {"phase": "Pending", **waiting(text * 65_536)}
    world.settle()
    messages = [(node["message"], node["lastFailure"]["message"]) for node in world.status["nodes"]]
    assert len(messages) == 200
    assert sum(stored_size(now) + stored_size(before) for now, before in messages) < 200 * 1536


def waiting(message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    return {"containerStatuses": [{"name": "worker", "restartCount": 0, "state": state}]}


def test_history_is_a_ring() -> None:
    world = running(2)
    for _ in range(30):
        world.form(0, 1)
        world.settle()
    history = world.status["history"]
    assert len(history) == 20
    assert [entry["round"] for entry in history] == list(range(12, 32))


def test_gone_nodes_are_not_kept() -> None:
    world = large(10)
    world.spec(replicas=2)
    world.settle()
    assert [node["index"] for node in world.status["nodes"]] == [0, 1]
