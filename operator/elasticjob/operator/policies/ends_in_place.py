"""Ends of the worker container that do not end its pod, since the kubelet restarts it in place (`OnFailure`).

The kubelet shows how often it has restarted the container, and how the newest instance that is over ended. An instance
is over before it is restarted, so ends are counted rather than restarts: a rule that fails the job need not wait for
the kubelet's back-off. Of several ends since the pod was last seen only the newest is known; it speaks for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.policies.pod_end import EndKind, PodEnd, by_exit

BACK_OFF = "CrashLoopBackOff"
"""The kubelet's word for an instance that is over and will be restarted."""
_UNKNOWN = PodEnd(kind=EndKind.FAILED, reason=constants.POD_ERROR, message="the kubelet restarted the container")


@dataclass(frozen=True, kw_only=True)
class EndsInPlace:
    """How often the worker ended in its pod and was, or will be, restarted there; and how it did last."""

    count: int = 0
    last: PodEnd | None = None


def ends_in_place(container: Mapping[str, Any], *, is_over: bool) -> EndsInPlace:
    """Read them from the status of the worker container.

    Args:
        container: The entry of `status.containerStatuses`.
        is_over: Whether the pod itself is over: then the newest end is that of the pod.
    """
    restarts = int(container.get("restartCount") or 0)
    state = container.get("state") or {}
    before = (container.get("lastState") or {}).get("terminated")
    now = state.get("terminated")
    if is_over:
        return _ends(restarts, before)
    if now is not None:
        return _ends(restarts + 1, now)
    backs_off = (state.get("waiting") or {}).get("reason") == BACK_OFF and before is not None
    return _ends(restarts + 1 if backs_off else restarts, before)


def _ends(count: int, ended: Mapping[str, Any] | None) -> EndsInPlace:
    if not count:
        return EndsInPlace()
    return EndsInPlace(count=count, last=_UNKNOWN if ended is None else _judged(by_exit(ended)))


def _judged(end: PodEnd) -> PodEnd:
    """One that succeeded is not restarted for its own sake: its sandbox was lost, for example."""
    return replace(end, kind=EndKind.DISRUPTED) if end.kind is EndKind.SUCCEEDED else end
