"""Why a pod is over, and on whose account.

The result is that of the *worker container*, found by its name: a mesh proxy may come first, never end, or fail. A pod
that is being deleted is over for us at once, since its replacement may join at once: the old pod is fenced by its UID.
What the infrastructure does to a pod is a disruption and uses no failure budget, whatever exit code the signal left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import texts

MESSAGE_LIMIT = 512
"""Bytes that the kept message of a container takes at most in the stored object."""

NODE_REASONS = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "PodGC",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""`status.reason` of pods that the kubelet or the control plane ended."""
OUT_OF_RESOURCE = "OutOf"
"""Begin of the reasons with which a kubelet refuses a pod that no longer fits, e.g. `OutOfcpu`."""


class EndKind(str, Enum):
    """On whose account a pod ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    """The worker's own doing; counts against the budget."""
    DISRUPTED = "Disrupted"
    """The infrastructure's or a person's doing."""


@dataclass(frozen=True, kw_only=True)
class PodEnd:
    """How a pod ended. `reason` is the API's own word where it has one.

    Args:
        announced: Whether the worker still ran when this was known, so that its group may go on without it in time.
        fails_job_by: The rule of the job by which this end fails it, else empty.
    """

    kind: EndKind
    reason: str
    message: str = ""
    exit_code: int | None = None
    announced: bool = False
    fails_job_by: str = ""


def pod_end(pod: Mapping[str, Any], worker: str) -> PodEnd | None:
    """The end of a pod, or None while its worker has a future.

    Args:
        pod: The pod as the API returned it.
        worker: Name of the worker container.
    """
    status = pod.get("status") or {}
    ended = _terminated(status, worker)
    disruption = _disruption(pod, status, ended)
    if disruption is not None:
        return disruption
    final = status.get("phase") in ("Succeeded", "Failed")
    if ended is not None and (final or ended.get("exitCode") == 0 or _never_restarts(pod)):
        return by_exit(ended)
    return _by_phase(status) if final else None


def _never_restarts(pod: Mapping[str, Any]) -> bool:
    return (pod.get("spec") or {}).get("restartPolicy") == "Never"


def _terminated(status: Mapping[str, Any], worker: str) -> Mapping[str, Any] | None:
    for container in status.get("containerStatuses") or ():
        if container.get("name") == worker:
            ended = (container.get("state") or {}).get("terminated")
            return ended if isinstance(ended, Mapping) else None
    return None


def _disruption(pod: Mapping[str, Any], status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> PodEnd | None:
    """What was done to the pod, if that ended it.

    A worker that ends with 0 while its pod is being deleted or its node shuts down obeyed a signal: that says nothing
    about its work. One that is known to have succeeded before is not judged again (see the ledger).
    """
    exit_code = (ended or {}).get("exitCode")
    deleting = (pod.get("metadata") or {}).get("deletionTimestamp")
    failed = status.get("phase") == "Failed" or (exit_code or 0) != 0
    target = _disruption_target(status)
    reason = str(status.get("reason") or "")
    if target is not None and (deleting or failed):
        return _disrupted(target.get("reason") or reason, target.get("message"), exit_code, announced=not failed)
    if failed and (reason in NODE_REASONS or reason.startswith(OUT_OF_RESOURCE)):
        return _disrupted(reason, status.get("message"), exit_code)
    if deleting:
        return _disrupted(constants.POD_DELETED, "the pod was deleted", exit_code, announced=not failed)
    return None


def _disrupted(reason: str, message: str | None, exit_code: int | None, *, announced: bool = False) -> PodEnd:
    return PodEnd(
        kind=EndKind.DISRUPTED,
        reason=reason,
        message=shortened(message),
        exit_code=exit_code,
        announced=announced and exit_code is None,
    )


def _disruption_target(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            found: Mapping[str, Any] = condition
            return found
    return None


def by_exit(ended: Mapping[str, Any]) -> PodEnd:
    """The end of a container that ended by itself (`state.terminated`)."""
    exit_code = ended.get("exitCode")
    kind = EndKind.SUCCEEDED if exit_code == 0 else EndKind.FAILED
    usual = constants.POD_COMPLETED if exit_code == 0 else constants.POD_ERROR
    return PodEnd(
        kind=kind, reason=ended.get("reason") or usual, message=shortened(ended.get("message")), exit_code=exit_code
    )


def _by_phase(status: Mapping[str, Any]) -> PodEnd:
    """A pod in its final phase whose worker container never ended by itself."""
    if status["phase"] == "Succeeded":
        return PodEnd(kind=EndKind.SUCCEEDED, reason=constants.POD_COMPLETED)
    if status.get("reason"):
        return PodEnd(kind=EndKind.FAILED, reason=status["reason"], message=shortened(status.get("message")))
    return _failed_init(status) or PodEnd(
        kind=EndKind.FAILED, reason=constants.POD_ERROR, message=shortened(status.get("message"))
    )


def _failed_init(status: Mapping[str, Any]) -> PodEnd | None:
    for container in status.get("initContainerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            words = f"init container {container.get('name')}: {ended.get('message') or ended.get('reason') or 'failed'}"
            return PodEnd(
                kind=EndKind.FAILED,
                reason=constants.POD_INIT_FAILED,
                message=shortened(words),
                exit_code=ended["exitCode"],
            )
    return None


def shortened(message: str | None) -> str:
    """The last part of a long message."""
    return texts.shortened((message or "").strip(), MESSAGE_LIMIT)
