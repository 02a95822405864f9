"""What happens to the pods of a finished job.

Agents learn from the rendezvous that the run is closed and exit by themselves, so pods that run get the close time-out
for that before they are deleted. Pods that never started have nobody to tell.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.operator.pod_facts import PodFacts


@dataclass(frozen=True, kw_only=True)
class CleanUp:
    """Pods to delete now, and the seconds until more are due (None: no more)."""

    pods: tuple[PodFacts, ...] = ()
    seconds_left: float | None = None


def clean_up(
    policy: str, pods: Iterable[PodFacts], *, completed: datetime, close_timeout: float, now: datetime
) -> CleanUp:
    """Which pods to delete.

    Args:
        policy: `Running` (pods that still run or wait), `All` or `None`.
        pods: All pods of the job.
        completed: When the job was over.
        close_timeout: Seconds that agents have to exit by themselves.
        now: The time of day.
    """
    if policy == "None":
        return CleanUp()
    left = (completed + timedelta(seconds=close_timeout) - now).total_seconds()
    present = [pod for pod in pods if not pod.deleting]
    due = tuple(pod for pod in present if _due(pod, policy, time_is_up=left <= 0))
    waits = any(not pod.final for pod in present if pod not in due)
    return CleanUp(pods=due, seconds_left=left if waits else None)


def _due(pod: PodFacts, policy: str, *, time_is_up: bool) -> bool:
    if pod.final or pod.stopped:
        return policy == "All"
    # A worker that is over leaves only sidecars, and a pending pod has no agent: neither would exit by itself.
    return time_is_up or pod.phase != "Running" or pod.end is not None
