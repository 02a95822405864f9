"""The end of a job, as any policy may pronounce it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A job is over: `succeeded` or not, with the reason of the condition and a message for people."""

    succeeded: bool
    reason: str
    message: str
