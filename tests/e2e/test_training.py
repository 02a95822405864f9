"""Stock torchrun trains the digits example, whoever dies."""

import re
import time

import pytest

from tests.e2e.space import Space, is_formed, ranks, round_of
from tests.e2e.suite import Suite

ACCURACY = 0.95


def accuracy(logs: str) -> float:
    found = re.search(r"^test accuracy (\d\.\d+)", logs, re.MULTILINE)
    assert found is not None, logs
    return float(found[1])


@pytest.mark.timeout(180)
def test_digits_reaches_its_accuracy_although_rank_0_is_killed(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=14, pause=0.05)
    before = space.wait_training("digits", nodes=2, seconds=60)
    space.wait("two epochs", lambda: "rank 0 world size 2 epoch 1 " in space.all_logs("digits"), seconds=60)

    space.kubectl("delete", "pod", ranks(before)[0], "--grace-period=0", "--force")

    killed = time.monotonic()
    after = space.wait_training("digits", nodes=2, newer_than=round_of(before), seconds=60)
    assert time.monotonic() - killed < 60
    status = space.wait_phase("digits", "Succeeded", seconds=90)
    logs = space.all_logs("digits")
    assert accuracy(logs) >= ACCURACY
    assert f"round {round_of(after)} rank 0 world size 2: training resumed from epoch" in logs
    # A pod that was deleted is no failure of the job.
    assert status["restarts"]["failures"] == 0
    assert status["restarts"]["disruptions"] == 1


@pytest.mark.timeout(180)
def test_the_other_nodes_go_on_when_one_that_is_not_rank_0_is_killed(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=14, pause=0.05)
    before = space.wait_training("digits", nodes=2, seconds=60)
    space.wait("one epoch", lambda: "rank 0 world size 2 epoch 0 " in space.all_logs("digits"), seconds=60)
    survivor = space.pod_uids("digits")[ranks(before)[0]]

    space.kubectl("delete", "pod", ranks(before)[1], "--grace-period=0", "--force")

    space.wait_training("digits", nodes=2, newer_than=round_of(before), seconds=60)
    assert survivor in space.pod_uids("digits").values()
    space.wait_phase("digits", "Succeeded", seconds=90)
    assert accuracy(space.all_logs("digits")) >= ACCURACY


@pytest.mark.timeout(120)
def test_a_training_script_that_fails_ends_the_job_with_its_exit_code(suite: Suite, space: Space) -> None:
    suite.apply_digits(space, epochs=1, command=["python3", "-c", "raise SystemExit(13)"], max_restarts=1)

    status = space.wait_phase("digits", "Failed", seconds=90)

    assert not is_formed(status)
    assert any("13" in node.get("message", "") for node in status["nodes"])
