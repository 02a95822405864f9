"""Pods that run while nobody has called the rendezvous: they cannot reach it, are refused, or do not know of it.

Nothing in the cluster reports this, and each pod by itself looks well. It can only be told after some time, since a
training image may need a while before it calls for the first time.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.policies.obstacles import Obstacle
from elasticjob.operator.situation import Situation, Stage, moment

PATIENCE = timedelta(seconds=90)
"""So long may a worker run before its silence is told. torch alone can take half a minute to be imported."""


def silence(situation: Situation) -> Obstacle | None:
    """The obstacle, once the first worker has run for longer than `PATIENCE` and nobody has ever called."""
    first = _first_running(situation)
    if first is None or situation.observed.now - first < PATIENCE:
        return None
    endpoint = situation.observed.facts.endpoint
    message = (
        f"No pod has called the rendezvous in {PATIENCE.seconds} s: the command of the worker must be torchrun or the "
        f"launcher, and pods must reach {endpoint.host}:{endpoint.port}"
    )
    return Obstacle(reason=constants.REASON_NO_CALLER, message=message)


def seconds_until_told(situation: Situation) -> float | None:
    """When to look again, None if nothing will have to be told."""
    first = _first_running(situation)
    if first is None:
        return None
    left = (first + PATIENCE - situation.observed.now).total_seconds()
    return left if left > 0 else None


def running_since(situation: Situation) -> Mapping[str, datetime]:
    """Since when the worker container runs, by pod UID."""
    worker = situation.spec.worker_container
    stamps = ((pod["metadata"].get("uid"), _started(pod, worker)) for pod in situation.observed.pods)
    return {str(uid): at for uid, at in stamps if at is not None}


def _first_running(situation: Situation) -> datetime | None:
    """Since when the first worker runs, if it would have to be told should nobody call."""
    if situation.stage is not Stage.ACTIVE or _was_called(situation):
        return None
    current = {pod.uid for pod in situation.current.values() if not pod.deleting}
    return min((at for uid, at in running_since(situation).items() if uid in current), default=None)


def _was_called(situation: Situation) -> bool:
    """A run that is not served cannot be called, which is told otherwise."""
    view = situation.view
    called = view is None or bool(view.waiting) or bool(view.misdirected) or view.round > situation.ledger.base_round
    return called or bool(situation.observed.node_events)


def _started(pod: Mapping[str, Any], worker: str) -> datetime | None:
    containers: Iterable[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    for container in containers:
        running = (container.get("state") or {}).get("running") or {}
        if container.get("name") == worker and isinstance(running.get("startedAt"), str):
            return moment(running["startedAt"])
    return None
