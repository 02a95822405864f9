"""Which pods are to be created, and when.

A node without a pod gets one at once; after a second end in a row, before a round has formed or soon after each pod was
made, pauses grow so that a crash loop does not become a load. What the API server refused is tried again after its own
growing pause: then all missing pods at once, since one lifted obstacle (a quota, a webhook) usually clears the way for
all.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.operator.model import Ledger
from elasticjob.operator.policies.obstacles import ApiProblem

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds before a node that keeps ending is started again."""


@dataclass(frozen=True, kw_only=True)
class Creations:
    """Nodes that get a pod now, and the seconds until more are due (None: no more)."""

    indexes: tuple[int, ...] = ()
    seconds_left: float | None = None


def creations(
    ledger: Ledger,
    *,
    present: Set[int],
    problems: Iterable[ApiProblem],
    charged_at: datetime | None,
    now: datetime,
    clock: float,
) -> Creations:
    """The nodes that need a pod.

    Args:
        ledger: What has been accounted for; its indexes are the nodes of the job.
        present: Nodes that have a pod that counts.
        problems: Creations that were refused.
        charged_at: When the last end was counted.
        now: The time of day.
        clock: Monotonic seconds.
    """
    missing = sorted(ledger.unfinished - present)
    if not missing:
        return Creations()
    refused = max((problem.retry_at - clock for problem in problems), default=0.0)
    if refused > 0:
        return Creations(seconds_left=refused)
    waits = {index: _pause_left(ledger, index, charged_at, now) for index in missing}
    later = [seconds for seconds in waits.values() if seconds > 0]
    due = tuple(index for index in missing if waits[index] <= 0)
    return Creations(indexes=due, seconds_left=min(later, default=None))


def ends_in_a_row(ledger: Ledger, index: int) -> int:
    """How often a node ended since a round formed, or soon after its pod was made, whichever is more."""
    in_round = ledger.round_failures.get(index, 0) + ledger.round_disruptions.get(index, 0)
    return max(in_round, ledger.quick_ends.get(index, 0))


def resting_until(ledger: Ledger, index: int, charged_at: datetime | None) -> datetime | None:
    """When the pause of a node that ended again and again is over, None if it has none."""
    ends = ends_in_a_row(ledger, index)
    if ends < 2 or charged_at is None:
        return None
    return charged_at + timedelta(seconds=_pause(ends))


def _pause(ends: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(ends - 2, 10))


def _pause_left(ledger: Ledger, index: int, charged_at: datetime | None, now: datetime) -> float:
    until = resting_until(ledger, index, charged_at)
    if until is None:
        return 0.0
    # A stamp in the future (a clock that was set back) must not hold a node for longer than its pause.
    return min(_pause(ends_in_a_row(ledger, index)), (until - now).total_seconds())
