"""What the demo says: one line a step, with the seconds since it began, and at once."""

from __future__ import annotations

import time

_started = time.monotonic()


def say(text: str) -> None:
    """Tell what is being done or what has changed."""
    print(f"[demo {time.monotonic() - _started:5.0f} s] {text}", flush=True)


def show(text: str) -> None:
    """Show what another program printed, set off by indentation."""
    for line in text.rstrip().splitlines():
        print(f"    {line}", flush=True)
