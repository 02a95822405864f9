"""The last changes of the group, as a ring in the status."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from elasticjob.operator.model import RendezvousStatus
from elasticjob.operator.pods import node_name
from elasticjob.rendezvous.orders import RunView

LENGTH = 20


def extended(
    history: Sequence[Mapping[str, Any]],
    *,
    job: str,
    before: RendezvousStatus,
    faulty: Set[int],
    surprised: Set[int],
    view: RunView | None,
    stamp: str,
) -> tuple[Mapping[str, Any], ...]:
    """The history with one more entry if a new round has formed.

    Args:
        history: The entries so far, oldest first.
        job: Name of the job.
        before: The rendezvous as stored.
        faulty: Nodes that failed or were disrupted since the last round: they are why there is a new one.
        surprised: Those of them that were lost without notice.
        view: The rendezvous now.
        stamp: The present time.
    """
    if view is None or view.round <= before.round:
        return tuple(history)
    planned = not surprised and view.worker_failures <= before.worker_failures
    return (*history, _entry(job, before, faulty, planned, view, stamp))[-LENGTH:]


def _entry(
    job: str, before: RendezvousStatus, faulty: Set[int], planned: bool, view: RunView, stamp: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "time": stamp,
        "round": view.round,
        "from": before.participants,
        "to": len(view.participants),
        "planned": planned,
    }
    if view.cause:
        entry["cause"] = view.cause
    if faulty:
        entry["node"] = node_name(job, min(faulty))
    if view.last_round_seconds is not None:
        entry["seconds"] = round(view.last_round_seconds, 3)
    return entry
