"""Why pods end: the table of field cases."""

from typing import Any

import pytest

from elasticjob.operator.model.texts import stored_size
from elasticjob.operator.policies.pod_end import EndKind, pod_end, shortened

SUCCEEDED, FAILED, DISRUPTED = EndKind.SUCCEEDED, EndKind.FAILED, EndKind.DISRUPTED


def ended(code: int, name: str = "worker", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, **more}}}


def alive(name: str) -> dict[str, Any]:
    return {"name": name, "state": {"running": {}}}


def pod(phase: str, *containers: dict[str, Any], deleting: bool = False, restart: str = "Never", **more: Any) -> Any:
    metadata = {"deletionTimestamp": "2030-01-01T00:00:00Z"} if deleting else {}
    status = {"phase": phase, "containerStatuses": list(containers), **more}
    return {"metadata": metadata, "spec": {"restartPolicy": restart}, "status": status}


TARGET = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "shutdown"}]
NO_TARGET = [{"type": "DisruptionTarget", "status": "False", "reason": "TerminationByKubelet"}]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Pending"), None),
        (pod("Running", alive("worker")), None),
        (pod("Unknown", alive("worker")), None),
        (pod("Succeeded", ended(0)), (SUCCEEDED, "Completed", 0)),
        (pod("Succeeded"), (SUCCEEDED, "Completed", None)),
        (pod("Failed", ended(1, reason="Error")), (FAILED, "Error", 1)),
        (pod("Failed", ended(143)), (FAILED, "Error", 143)),
        (pod("Failed", ended(255)), (FAILED, "Error", 255)),
        (pod("Failed", ended(137, reason="OOMKilled")), (FAILED, "OOMKilled", 137)),
        (pod("Failed", reason="DeadlineExceeded"), (FAILED, "DeadlineExceeded", None)),
        (pod("Failed"), (FAILED, "Error", None)),
        (pod("Failed", reason="Evicted"), (DISRUPTED, "Evicted", None)),
        (pod("Failed", ended(137), reason="Terminated"), (DISRUPTED, "Terminated", 137)),
        (pod("Failed", ended(137), reason="NodeShutdown"), (DISRUPTED, "NodeShutdown", 137)),
        (pod("Failed", reason="OutOfnvidia.com/gpu"), (DISRUPTED, "OutOfnvidia.com/gpu", None)),
        (pod("Failed", reason="UnexpectedAdmissionError"), (DISRUPTED, "UnexpectedAdmissionError", None)),
        (pod("Failed", ended(1), conditions=TARGET), (DISRUPTED, "TerminationByKubelet", 1)),
        (pod("Failed", ended(0), reason="Terminated", conditions=TARGET), (DISRUPTED, "TerminationByKubelet", 0)),
        (pod("Failed", ended(0), reason="Terminated"), (DISRUPTED, "Terminated", 0)),
        (pod("Failed", ended(1), conditions=NO_TARGET), (FAILED, "Error", 1)),
        (pod("Running", alive("worker"), conditions=TARGET), None),
        (pod("Running", alive("worker"), deleting=True), (DISRUPTED, "PodDeleted", None)),
        (pod("Running", alive("worker"), deleting=True, conditions=TARGET), (DISRUPTED, "TerminationByKubelet", None)),
        (pod("Pending", deleting=True), (DISRUPTED, "PodDeleted", None)),
        (pod("Unknown", alive("worker"), deleting=True), (DISRUPTED, "PodDeleted", None)),
        (pod("Failed", ended(137), deleting=True), (DISRUPTED, "PodDeleted", 137)),
        (pod("Succeeded", ended(0), deleting=True), (DISRUPTED, "PodDeleted", 0)),
        (pod("Succeeded", ended(0), conditions=TARGET), (SUCCEEDED, "Completed", 0)),
    ],
)
def test_a_pod_ends_on_the_right_account(found: Any, expected: tuple[EndKind, str, int | None] | None) -> None:
    end = pod_end(found, "worker")
    assert (end and (end.kind, end.reason, end.exit_code)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Running", alive("mesh-proxy"), ended(0)), SUCCEEDED),
        (pod("Running", alive("mesh-proxy"), ended(1)), FAILED),
        (pod("Running", ended(1, "mesh-proxy"), alive("worker")), None),
        (pod("Failed", ended(1, "mesh-proxy"), ended(0)), SUCCEEDED),
        (pod("Running", alive("mesh-proxy"), ended(1), conditions=TARGET), DISRUPTED),
    ],
)
def test_sidecars_do_not_matter_wherever_they_stand(found: Any, expected: EndKind | None) -> None:
    end = pod_end(found, "worker")
    assert (end and end.kind) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Running", ended(1), restart="OnFailure"), None),
        (pod("Running", ended(0), restart="OnFailure"), SUCCEEDED),
        (pod("Failed", ended(1), restart="OnFailure"), FAILED),
    ],
)
def test_a_worker_that_the_kubelet_restarts_is_not_over(found: Any, expected: EndKind | None) -> None:
    end = pod_end(found, "worker")
    assert (end and end.kind) == expected


def test_a_failed_init_container_is_named_with_its_exit_code() -> None:
    inits = [ended(0, "first"), ended(2, "fetch", reason="Error", message="no such bucket")]
    end = pod_end(pod("Failed", initContainerStatuses=inits), "worker")
    assert end is not None
    assert (end.kind, end.reason, end.exit_code) == (FAILED, "InitContainerFailed", 2)
    assert end.message == "init container fetch: no such bucket"


def test_of_a_long_message_the_end_is_kept() -> None:
    end = pod_end(pod("Failed", ended(1, message="x" * 65536 + " ValueError: no data\n")), "worker")
    assert end is not None
    assert stored_size(end.message) == 512
    assert end.message.endswith("ValueError: no data")


def test_a_short_message_stays_as_it_is() -> None:
    assert shortened("  boom\n") == "boom"
    assert shortened(None) == ""
