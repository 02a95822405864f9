"""When a job that waits will stop to do so, and by which rule."""

from datetime import datetime, timedelta

from elasticjob.operator.situation import Situation, moment
from elasticjob.operator.status.rendezvous import rendezvous_status
from elasticjob.rendezvous.orders import RunState


def outlook(situation: Situation) -> str:
    """One sentence; empty while a round trains or if no deadline runs.

    `Fails at 14:05:10Z (startupDeadlineSeconds).`
    """
    if situation.formed:
        return ""
    now, round_deadline = situation.observed.now, moment(rendezvous_status(situation).deadline)
    if situation.view is None:
        round_deadline = None
    in_last_call = situation.view is not None and situation.view.state is RunState.LAST_CALL
    started, spec = moment(situation.start_time), situation.spec
    first = situation.ledger.round <= situation.ledger.base_round
    known = (
        (_after(started, spec.startup_deadline) if first else None, "startupDeadlineSeconds"),
        (None if in_last_call else round_deadline, "joinTimeoutSeconds"),
        (_after(started, spec.active_deadline), "activeDeadlineSeconds"),
    )
    running = [(at, rule) for at, rule in known if at is not None]
    if in_last_call and round_deadline is not None and all(round_deadline <= at for at, _ in running):
        return f"Starts at {clock(round_deadline, now)} with the nodes that are in ({_patience(situation)})."
    if not running:
        return ""
    at, rule = min(running)
    return f"Fails at {clock(at, now)} ({rule})."


def _patience(situation: Situation) -> str:
    """The rule by which a round waits for nodes that it could do without."""
    spec = situation.spec
    is_longer = spec.wait_for_replicas > spec.rendezvous.last_call_timeout
    begins_anew = situation.view is not None and situation.view.begins_anew
    return "waitForReplicasSeconds" if is_longer and begins_anew else "lastCallTimeoutSeconds"


def clock(at: datetime, now: datetime) -> str:
    """The time of day in UTC, with the date unless that is today."""
    return at.strftime("%H:%M:%SZ" if at.date() == now.date() else "%Y-%m-%dT%H:%M:%SZ")


def _after(started: datetime | None, seconds: int | None) -> datetime | None:
    return None if started is None or seconds is None else started + timedelta(seconds=seconds)
