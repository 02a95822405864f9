"""When a finished job is deleted."""

from datetime import datetime, timedelta


def seconds_to_live(ttl: int | None, *, completed: datetime | None, now: datetime) -> float | None:
    """Seconds until the job is to be deleted, 0 or less when it is due, None if it is kept.

    Args:
        ttl: `spec.ttlSecondsAfterFinished`.
        completed: The *stored* completion time: nothing is deleted before its end is on record.
        now: The time of day.
    """
    if ttl is None or completed is None:
        return None
    return (completed + timedelta(seconds=ttl) - now).total_seconds()
