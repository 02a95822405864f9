"""Progress lines: on standard error, so that standard output stays usable in `$(...)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[cluster] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step and, when it succeeded, how long it took."""
    started = time.monotonic()
    say(f"{text} ...")
    yield
    say(f"{text}: done after {time.monotonic() - started:.1f} s")
