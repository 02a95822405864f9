"""Pods on machines that do not report."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from elasticjob.operator.pod_facts import PodFacts, read_pod, unreachable_since
from elasticjob.operator.policies.node_trouble import lose_nodes
from elasticjob.operator.policies.pod_end import EndKind, PodEnd

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=timezone.utc)
STAMP = "2030-01-01T12:00:00Z"


def conditions(ready: str, containers: str, **more: Any) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "ContainersReady", "status": containers},
            {"type": "Ready", "status": ready, "lastTransitionTime": STAMP, **more},
        ]
    }


@pytest.mark.parametrize(
    ("status", "unreachable"),
    [
        (conditions("False", "True"), True),
        (conditions("False", "True", reason=""), True),
        (conditions("True", "True"), False),
        (conditions("False", "False", reason="ContainersNotReady"), False),
        (conditions("False", "False"), False),
        (conditions("False", "True", reason="ReadinessGatesNotReady"), False),
        (conditions("False", "True", reason="PodCompleted"), False),
        (conditions("False", "True", lastTransitionTime=None), False),
        ({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": STAMP}]}, False),
        ({}, False),
    ],
)
def test_what_only_the_node_controller_writes(status: dict[str, Any], unreachable: bool) -> None:
    assert unreachable_since(status) == (NOW if unreachable else None)


def pod(*, silent: float | None, **fields: Any) -> PodFacts:
    found = read_pod(
        {
            "metadata": {
                "name": "digits-1-0",
                "uid": "pod-1",
                "labels": {"elasticjob.dev/node-index": "1", "elasticjob.dev/attempt": "0"},
            },
            "spec": {"nodeName": "machine-7"},
            "status": {"phase": "Running"},
        },
        "worker",
    )
    assert found is not None
    since = None if silent is None else NOW - timedelta(seconds=silent)
    return replace(found, unreachable_since=since, **fields)


ENDED = PodEnd(kind=EndKind.FAILED, reason="Error")


@pytest.mark.parametrize(
    ("found", "heard", "lost", "left"),
    [
        (pod(silent=None), set(), False, None),
        (pod(silent=0), set(), False, 15.0),
        (pod(silent=14), set(), False, 1.0),
        (pod(silent=15), set(), True, None),
        (pod(silent=9999), set(), True, None),
        (pod(silent=9999), {"pod-1"}, False, None),
        (pod(silent=9999, end=ENDED), set(), False, None),
    ],
)
def test_a_pod_is_lost_once_neither_machine_nor_agent_is_heard(
    found: PodFacts, heard: set[str], lost: bool, left: float | None
) -> None:
    losses = lose_nodes([found], heard=heard, window=15.0, now=NOW)
    end = losses.pods[0].end
    assert (end is not None and end.reason == "NodeLost") is lost
    assert losses.seconds_left == left
    if lost and end is not None:
        assert end.kind is EndKind.DISRUPTED
        assert "machine-7" in end.message
