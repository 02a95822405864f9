"""The real clock."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Monotonic time that goes on while the machine is suspended.

    A leader on a suspended virtual machine must find its lease expired when it wakes up, so the boot-time clock is
    used where the platform has it.
    """

    def now(self) -> float:
        """Seconds since the machine was started, suspension included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339 with seconds, the API's `Time`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """RFC 3339 with microseconds, the API's `MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
