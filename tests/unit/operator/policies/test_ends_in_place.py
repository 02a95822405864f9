"""Ends of the worker that the kubelet follows by a restart in the same pod, as the kubelet shows them."""

from typing import Any

import pytest

from elasticjob.operator.policies.ends_in_place import ends_in_place
from elasticjob.operator.policies.pod_end import EndKind

RUNS: dict[str, Any] = {"running": {}}
BACKS_OFF: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff"}}
STARTS: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}


def over(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Error"}}


@pytest.mark.parametrize(
    ("restarts", "state", "last", "is_over", "count", "code"),
    [
        (0, {}, {}, False, 0, None),
        (0, RUNS, {}, False, 0, None),
        (0, over(7), {}, False, 1, 7),
        (0, BACKS_OFF, over(7), False, 1, 7),
        (1, STARTS, over(7), False, 1, 7),
        (1, RUNS, over(7), False, 1, 7),
        (1, over(8), over(7), False, 2, 8),
        (1, BACKS_OFF, over(8), False, 2, 8),
        (2, RUNS, over(8), False, 2, 8),
        (2, over(9), over(8), True, 2, 8),
        (0, over(9), {}, True, 0, None),
        (1, RUNS, {}, False, 1, None),
    ],
)
def test_each_instance_is_one_end(
    restarts: int, state: dict[str, Any], last: dict[str, Any], is_over: bool, count: int, code: int | None
) -> None:
    container = {"name": "worker", "restartCount": restarts, "state": state, "lastState": last}
    found = ends_in_place(container, is_over=is_over)
    assert (found.count, found.last.exit_code if found.last else None) == (count, code)
    assert found.last is None or found.last.kind is EndKind.FAILED


def test_a_worker_that_is_restarted_though_it_succeeded_was_disrupted() -> None:
    container = {"name": "worker", "restartCount": 1, "state": RUNS, "lastState": over(0)}
    last = ends_in_place(container, is_over=False).last
    assert last is not None
    assert last.kind is EndKind.DISRUPTED
