"""Stock torchrun trains the digits example, whoever dies."""

import re

import pytest

from tests.e2e.space import Object, Space, messages, ranks, round_of
from tests.e2e.suite import Suite

ACCURACY = 0.95


def accuracy(logs: str) -> float:
    found = re.search(r"^test accuracy (\d\.\d+)", logs, re.MULTILINE)
    assert found is not None, logs
    return float(found[1])


@pytest.mark.timeout(600, func_only=True)
def test_digits_reaches_its_accuracy_although_both_nodes_are_killed_one_after_the_other(
    suite: Suite, space: Space
) -> None:
    suite.apply_digits(space, epochs=24, pause=0.08)
    first = space.wait_training("digits", nodes=2, seconds=180)
    space.wait("an epoch", lambda: "rank 0 world size 2 epoch 0 " in space.all_logs("digits"), seconds=180)
    survivor = space.pod_uids("digits")[ranks(first)[0]]

    space.kubectl("delete", "pod", ranks(first)[1], "--grace-period=0", "--force")
    second = space.wait_training("digits", nodes=2, newer_than=round_of(first), seconds=180)
    assert survivor in space.pod_uids("digits").values()
    space.wait("training to resume", lambda: resumes(second) in space.all_logs("digits"), seconds=180)

    space.kubectl("delete", "pod", ranks(second)[0], "--grace-period=0", "--force")
    third = space.wait_training("digits", nodes=2, newer_than=round_of(second), seconds=180)

    status = space.wait_phase("digits", "Succeeded", seconds=180)
    logs = space.all_logs("digits")
    assert accuracy(logs) >= ACCURACY
    assert resumes(third) in logs
    # A pod that was deleted is no failure of the job.
    assert status["restarts"] == {"failures": 0, "disruptions": 2, "resizes": 0}


def resumes(status: Object) -> str:
    """What rank 0 says in a round, once it has read the checkpoint of an earlier one."""
    return f"round {round_of(status)} rank 0 world size 2: training resumed from epoch"


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
