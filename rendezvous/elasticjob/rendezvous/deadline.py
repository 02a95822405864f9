"""One deadline for all the steps of a call."""

import time


def remaining(deadline: float) -> float:
    """Seconds until a deadline on the monotonic clock.

    Raises:
        TimeoutError: It has passed.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds
