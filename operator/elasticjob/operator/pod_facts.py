"""What matters of a raw pod, read once. Pure.

A pod that carries no usable index or attempt is none of ours to judge and is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model.stamps import parse_time
from elasticjob.operator.policies.ends_in_place import EndsInPlace, ends_in_place
from elasticjob.operator.policies.obstacles import Obstacle, pod_obstacle
from elasticjob.operator.policies.pod_end import PodEnd, pod_end


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """One worker pod.

    Args:
        deleting: Whether its deletion has been asked for.
        target: Whether the API announces that it will be disrupted.
        target_reason: Why, in the API's own word.
        leaves_first: Whether the user wants it to leave first when the job shrinks.
        unreachable_since: Since when its machine does not report, or None while it does.
        created: When it was made, or None if that is not known.
        conditions: Type and status of its conditions.
        stopped: Whether all its containers have ended. The phase follows a moment later.
        ends_in_place: Ends of the worker container that the kubelet follows by a restart within the pod.
        end: Why it is over, or None.
        obstacle: What keeps it from starting, or None.
    """

    name: str
    uid: str
    index: int
    attempt: int
    phase: str
    node: str
    ready: bool
    deleting: bool
    target: bool
    end: PodEnd | None
    obstacle: Obstacle | None
    ends_in_place: EndsInPlace = field(default_factory=EndsInPlace)
    stopped: bool = False
    created: datetime | None = None
    conditions: frozenset[tuple[str, str]] = frozenset()
    target_reason: str = ""
    leaves_first: bool = False
    unreachable_since: datetime | None = None

    @property
    def final(self) -> bool:
        """Whether the pod object is in a final phase: nothing of it runs any more."""
        return self.phase in ("Succeeded", "Failed")


def read_pods(pods: Iterable[Mapping[str, Any]], worker: str) -> tuple[PodFacts, ...]:
    """The facts of all pods that are nodes, by index and attempt."""
    facts = (read_pod(pod, worker) for pod in pods)
    return tuple(sorted((one for one in facts if one is not None), key=lambda one: (one.index, one.attempt, one.uid)))


def read_pod(pod: Mapping[str, Any], worker: str) -> PodFacts | None:
    """The facts of one pod, or None if it is no node."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    index = _number(labels.get(constants.LABEL_NODE_INDEX))
    attempt = _number(labels.get(constants.LABEL_ATTEMPT))
    if index is None or attempt is None or index >= 2 * constants.MAX_REPLICAS:
        return None
    end = pod_end(pod, worker)
    return PodFacts(
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        index=index,
        attempt=attempt,
        phase=str(status.get("phase") or "Pending"),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        ready=_is_true(status, "Ready"),
        deleting=bool(metadata.get("deletionTimestamp")),
        target=_is_true(status, "DisruptionTarget"),
        target_reason=str(_condition(status, "DisruptionTarget").get("reason") or ""),
        leaves_first=(metadata.get("annotations") or {}).get(constants.ANNOTATION_LEAVE_FIRST) == "true",
        unreachable_since=unreachable_since(status),
        stopped=_has_stopped(pod.get("spec") or {}, status),
        created=_moment(metadata.get("creationTimestamp")),
        conditions=_conditions(status),
        ends_in_place=_ends_in_place(status, worker, is_over=end is not None),
        end=end,
        obstacle=pod_obstacle(pod),
    )


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def unreachable_since(status: Mapping[str, Any]) -> datetime | None:
    """Since when the machine does not report: `Ready` is False, without a reason, while all containers are ready.

    That is what the node controller leaves behind (`MarkPodsNotReady` in Kubernetes' node life-cycle controller).
    """
    ready = _condition(status, "Ready")
    if ready.get("status") != "False" or ready.get("reason") or not _is_true(status, "ContainersReady"):
        return None
    return _moment(ready.get("lastTransitionTime"))


def _moment(stamp: object) -> datetime | None:
    try:
        return parse_time(str(stamp))
    except ValueError:
        return None


def _conditions(status: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((str(one.get("type")), str(one.get("status"))) for one in status.get("conditions") or ())


def _is_true(status: Mapping[str, Any], type_: str) -> bool:
    return bool(_condition(status, type_).get("status") == "True")


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions") or () if one.get("type") == type_), {})


def _has_stopped(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    sidecars = {one.get("name") for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    containers = [
        *(status.get("containerStatuses") or ()),
        *(one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars),
    ]
    return bool(containers) and all("terminated" in (one.get("state") or {}) for one in containers)


def _ends_in_place(status: Mapping[str, Any], worker: str, *, is_over: bool) -> EndsInPlace:
    for container in status.get("containerStatuses") or ():
        if container.get("name") == worker:
            return ends_in_place(container, is_over=is_over)
    return EndsInPlace()
