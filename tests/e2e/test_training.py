"""Stock torchrun trains the digits example, whoever dies."""

import re

import pytest

from tests.e2e.space import Space, messages, ranks, round_of
from tests.e2e.suite import Suite

ACCURACY = 0.95


def accuracy(logs: str) -> float:
    found = re.search(r"^test accuracy (\d\.\d+)", logs, re.MULTILINE)
    assert found is not None, logs
    return float(found[1])


@pytest.mark.timeout(400, func_only=True)
def test_digits_reaches_its_accuracy_although_rank_0_is_killed(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=14, pause=0.05)
    before = space.wait_training("digits", nodes=2, seconds=120)
    space.wait("two epochs", lambda: "rank 0 world size 2 epoch 1 " in space.all_logs("digits"), seconds=120)

    space.kubectl("delete", "pod", ranks(before)[0], "--grace-period=0", "--force")

    after = space.wait_training("digits", nodes=2, newer_than=round_of(before), seconds=120)
    status = space.wait_phase("digits", "Succeeded", seconds=150)
    logs = space.all_logs("digits")
    assert accuracy(logs) >= ACCURACY
    assert f"round {round_of(after)} rank 0 world size 2: training resumed from epoch" in logs
    # A pod that was deleted is no failure of the job.
    assert status["restarts"]["failures"] == 0
    assert status["restarts"]["disruptions"] == 1


@pytest.mark.timeout(400, func_only=True)
def test_the_other_nodes_go_on_when_one_that_is_not_rank_0_is_killed(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=14, pause=0.05)
    before = space.wait_training("digits", nodes=2, seconds=120)
    space.wait("one epoch", lambda: "rank 0 world size 2 epoch 0 " in space.all_logs("digits"), seconds=120)
    survivor = space.pod_uids("digits")[ranks(before)[0]]

    space.kubectl("delete", "pod", ranks(before)[1], "--grace-period=0", "--force")

    space.wait_training("digits", nodes=2, newer_than=round_of(before), seconds=120)
    assert survivor in space.pod_uids("digits").values()
    space.wait_phase("digits", "Succeeded", seconds=150)
    assert accuracy(space.all_logs("digits")) >= ACCURACY


@pytest.mark.timeout(400, func_only=True)
def test_a_training_script_that_fails_ends_the_job_with_its_exit_code(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=1, command=["python3", "-c", "raise SystemExit(13)"], max_restarts=1)

    status = space.wait_phase("digits", "Failed", seconds=150)

    assert "exit code 13" in messages(status)
    space.wait_status(
        "digits",
        "both nodes to have failed",
        lambda one: {node["state"] for node in one["nodes"]} == {"FAILED"},
        seconds=120,
    )
