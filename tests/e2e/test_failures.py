"""What goes wrong is in the status, in the words of whoever refused."""

from typing import Any

import pytest

from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space, messages
from tests.e2e.suite import Suite

TOLD_SECONDS = 120


def test_a_failing_program_ends_the_job_and_leaves_its_exit_code(suite: Suite, space: Space) -> None:
    space.apply(job("fails", image=suite.image, command=launched("raise SystemExit(7)"), max_restarts=1))

    status = space.wait_phase("fails", "Failed", seconds=120)
    assert "exit code 7" in messages(status)
    # The job is over before its pods are: the agents hear of it and end by themselves.
    space.wait_status(
        "fails",
        "the exit code of both nodes",
        lambda one: [node.get("exitCode") for node in one["nodes"]] == [7, 7],
        seconds=120,
    )
    assert {node["state"] for node in space.status("fails")["nodes"]} == {"FAILED"}


def test_an_image_that_cannot_be_pulled_is_told(suite: Suite, space: Space) -> None:
    space.apply(job("unpullable", image="registry.invalid/nobody:1", pull_policy="IfNotPresent", command=["true"]))

    status = space.wait_status(
        "unpullable", "the image in a condition", lambda one: "registry.invalid" in messages(one), seconds=120
    )

    assert "ImagePull" in messages(status)
    assert status["restarts"]["failures"] == 0


OBSTACLES = [
    pytest.param(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}},
        {},
        "exceeded quota",
        id="quota",
    ),
    pytest.param(None, {"serviceAccountName": "nobody"}, 'serviceaccount "nobody" not found', id="service-account"),
    pytest.param(
        None,
        {"hostNetwork": True},
        "violates PodSecurity",
        id="pod-security",
    ),
]


@pytest.mark.parametrize(("obstacle", "pod", "words"), OBSTACLES)
def test_pods_that_are_refused_are_told_in_the_words_of_the_api(
    suite: Suite, space: Space, obstacle: Any, pod: dict[str, Any], words: str
) -> None:
    if obstacle is not None:
        space.apply(obstacle)

    space.apply(job("refused", image=suite.image, command=launched(FOREVER), **pod))

    space.wait_status("refused", f"{words!r} in a condition", lambda one: words in messages(one), seconds=TOLD_SECONDS)
    assert not space.pods("refused")


def test_a_job_starts_by_itself_when_the_obstacle_is_lifted(suite: Suite, space: Space) -> None:
    space.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    )
    space.apply(job("patient", image=suite.image, command=launched("pass")))
    space.wait_status("patient", "the quota in a condition", lambda one: "exceeded quota" in messages(one), seconds=120)

    space.kubectl("delete", "resourcequota", "none")

    status = space.wait_phase("patient", "Succeeded", seconds=120)
    assert status["restarts"]["failures"] == 0
