"""Which pods are lost with the machine that they are on.

When a machine stops reporting, the node controller sets the condition `Ready` of its pods to False and leaves all else
as the kubelet wrote it last. A kubelet never writes that: where it says that a pod is not ready, it gives a reason, or
says of the containers that they are not ready either. So the pod itself tells, and no right to read Nodes is needed.

A machine that does not report may still work, as when its kubelet is being updated. So both detectors must agree: a
pod is lost once its agent has been silent as well, for as long as keep-alives may be missed. While the agent calls,
training goes on, until Kubernetes itself evicts the pod by its tolerations.

Not seen: a machine without a node controller that looks after it, pods there that were not ready before, and machines
that report and are broken all the same.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from elasticjob.operator import constants
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.policies.pod_end import EndKind, PodEnd


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The pods, those that are lost with an end, and the seconds until more may be (None: no more)."""

    pods: tuple[PodFacts, ...]
    seconds_left: float | None = None


def lose_nodes(pods: Iterable[PodFacts], *, heard: Collection[str], window: float, now: datetime) -> Losses:
    """Judge the pods whose machine does not report.

    Args:
        pods: All pods of the job.
        heard: UIDs of the pods that the rendezvous hears from.
        window: Seconds of silence after which a node counts as lost.
        now: The time of day.
    """
    result, left = [], []
    for pod in pods:
        since = pod.unreachable_since
        if since is None or pod.end is not None or pod.uid in heard:
            result.append(pod)
            continue
        seconds = (since + timedelta(seconds=window) - now).total_seconds()
        result.append(pod if seconds > 0 else replace(pod, end=_lost(pod)))
        left.append(seconds)
    return Losses(pods=tuple(result), seconds_left=min((seconds for seconds in left if seconds > 0), default=None))


def _lost(pod: PodFacts) -> PodEnd:
    message = f"machine {pod.node} does not report, and neither does the agent on it"
    return PodEnd(kind=EndKind.DISRUPTED, reason=constants.POD_NODE_LOST, message=message)
