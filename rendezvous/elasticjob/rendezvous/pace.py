"""How the worker's end paces itself: pauses that spread the nodes of a job out, and one warning for each outage."""

import logging
import random
import time

FIRST_BACKOFF_SECONDS = 0.2
_MAX_DOUBLINGS = 16


def full_jitter(attempt: int, *, cap: float, first: float = FIRST_BACKOFF_SECONDS) -> float:
    """Seconds to pause before the next attempt: uniform between 0 and a bound that doubles with each attempt.

    A thousand nodes that lost the same server at the same moment so come back evenly spread (the "full jitter" of
    the AWS Architecture Blog, "Exponential Backoff And Jitter").

    Args:
        attempt: How many attempts have failed before, from 0.
        cap: Largest bound in seconds.
        first: Bound of the first pause in seconds.
    """
    return random.uniform(0.0, min(cap, first * 2 ** min(attempt, _MAX_DOUBLINGS)))


class Outage:
    """Notices that something does not answer, and says so once when it begins and once when it ends."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._since: float | None = None

    def note(self, cause: object) -> None:
        """An attempt failed. Warns if this begins an outage."""
        if self._since is None:
            self._since = time.monotonic()
            self._log.warning("%s does not answer, trying on: %s", self._what, cause)
        else:
            self._log.debug("%s still does not answer: %s", self._what, cause)

    def end(self) -> None:
        """An attempt succeeded."""
        if self._since is not None:
            self._log.warning("%s answers again after %.1f s", self._what, time.monotonic() - self._since)
            self._since = None
