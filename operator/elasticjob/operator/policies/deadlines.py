"""Deadlines of a job: for all of its work, and for the first round to form.

Both count from `status.startTime`, which a suspension clears. That stamp was written by this operator or a predecessor
and survives restarts, which a monotonic clock would not.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.operator import constants
from elasticjob.operator.policies.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """Either the verdict, or the seconds until there would be one, or neither if no deadline runs."""

    verdict: Verdict | None = None
    seconds_left: float | None = None


def active_deadline(limit: int | None, *, started: datetime | None, now: datetime) -> Deadline:
    """The job may run for `limit` seconds."""
    message = f"the job ran longer than activeDeadlineSeconds ({limit})"
    return _deadline(limit, started, now, constants.REASON_ACTIVE_DEADLINE, message)


def startup_deadline(limit: int | None, *, started: datetime | None, now: datetime, formed: bool) -> Deadline:
    """The first round must form within `limit` seconds."""
    if formed:
        return Deadline()
    message = f"no round formed within startupDeadlineSeconds ({limit})"
    return _deadline(limit, started, now, constants.REASON_STARTUP_DEADLINE, message)


def _deadline(limit: int | None, started: datetime | None, now: datetime, reason: str, message: str) -> Deadline:
    if limit is None or started is None:
        return Deadline()
    left = (started + timedelta(seconds=limit) - now).total_seconds()
    if left > 0:
        return Deadline(seconds_left=left)
    return Deadline(verdict=Verdict(succeeded=False, reason=reason, message=message))
