"""The rendezvous in the status: what was last heard of it."""

from dataclasses import replace
from datetime import datetime, timedelta

from elasticjob.operator.model import RendezvousStatus
from elasticjob.operator.model.stamps import format_time
from elasticjob.operator.situation import Situation, Stage, moment
from elasticjob.rendezvous.orders import RunState, RunView

_SAME_DEADLINE = timedelta(seconds=3)
"""Two readings of one running deadline may differ by this much: a stored one is not written anew for it."""


def rendezvous_status(situation: Situation) -> RendezvousStatus:
    """The rendezvous now. Nothing that was known is forgotten while the run is not served."""
    before = situation.before.rendezvous
    fixed = replace(before, run_id=situation.job.uid, backend=situation.spec.rendezvous.backend)
    view = situation.view
    result = fixed if view is None else _from_view(fixed, view, situation.observed.now)
    if situation.stage is Stage.FINISHED:
        return replace(result, state=RunState.CLOSED.value, waiting=0, deadline="")
    if situation.stage is Stage.SUSPENDED:
        # Not that its pods drain, which is seen or not as it happens: they do so because of this.
        return replace(result, state=Stage.SUSPENDED.value, cause="the job is suspended", waiting=0, deadline="")
    return result


def _from_view(before: RendezvousStatus, view: RunView, now: datetime) -> RendezvousStatus:
    rank_zero = next((node.index for node in view.participants if node.rank == 0), None)
    return replace(
        before,
        epoch=view.epoch,
        round=view.round,
        state=view.state.value,
        participants=len(view.participants),
        waiting=len(view.waiting),
        deadline=_deadline(before.deadline, view.deadline_seconds, now),
        cause=view.cause,
        members=frozenset(node.index for node in view.participants),
        rank_zero=rank_zero,
        worker_failures=max(before.worker_failures, view.worker_failures),
    )


def _deadline(before: str, seconds: float | None, now: datetime) -> str:
    if seconds is None:
        return ""
    deadline = now + timedelta(seconds=seconds)
    known = moment(before)
    return before if known is not None and abs(known - deadline) <= _SAME_DEADLINE else format_time(deadline)
