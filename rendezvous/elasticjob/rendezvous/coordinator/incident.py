"""Why a round is being replaced, and whom that is charged to.

Everything that happens between two formed rounds is one incident. Worker failures are charged once an incident, when
the next round forms, and only if the incident began with a failure and nobody was lost in it: survivors of a lost node
report failures as well, often before the loss is noticed.
"""

from dataclasses import dataclass
from enum import Enum

from elasticjob.rendezvous.protocol import Failure


class Opening(str, Enum):
    """What made the round open."""

    FIRST = "first"
    LOSS = "loss"
    NEWCOMER = "newcomer"
    REJOIN = "rejoin"
    FAILURE = "failure"


@dataclass(kw_only=True)
class Incident:
    """What has happened since the newest round was formed or, if it stands, when that was replaced."""

    opening: Opening
    opened_at: float
    cause: str
    lost: bool = False
    failure: str = ""

    @property
    def charged(self) -> bool:
        """Whether a worker failure is to be counted."""
        return self.opening is Opening.FAILURE and not self.lost

    @property
    def breaks_the_group(self) -> bool:
        """Whether training has stopped; a newcomer alone leaves the members at work until they come."""
        return self.opening is not Opening.NEWCOMER or self.lost


def describe_failure(label: str, failure: Failure) -> str:
    """A worker failure in one sentence."""
    detail = f": {failure.message}" if failure.message else ""
    return f"the workers of {label} failed with exit code {failure.exit_code}{detail}"
