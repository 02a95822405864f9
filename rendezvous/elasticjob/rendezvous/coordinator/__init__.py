"""The hosted mode: one coordinator decides all rounds of a run.

`Coordinator` is pure and single-threaded; its host gives it orders, calls and time, and carries out its effects.
"""

from elasticjob.rendezvous.coordinator.core import LEFT_GRACE, Coordinator
from elasticjob.rendezvous.coordinator.effects import (
    Answer,
    Changed,
    Effect,
    Persist,
    Record,
    Verify,
    Waiter,
    WaitResult,
)

__all__ = [
    "LEFT_GRACE",
    "Answer",
    "Changed",
    "Coordinator",
    "Effect",
    "Persist",
    "Record",
    "Verify",
    "WaitResult",
    "Waiter",
]
