"""Locks between processes. The kernel frees them when the holder dies, so no stale lock can ever block a run."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.errors import ClusterError
from tests.cluster.paths import locks_dir
from tests.cluster.progress import say

_POLL_SECONDS = 0.1


@contextmanager
def exclusive(name: str, *, timeout: float, waiting_for: str) -> Iterator[None]:
    """Hold the lock called `name`; says once that it waits, and gives up after `timeout` seconds."""
    path = locks_dir() / f"{name}.lock"
    deadline = time.monotonic() + timeout
    told = False
    with path.open("w") as handle:
        while not _try_lock(handle.fileno()):
            if time.monotonic() > deadline:
                raise ClusterError(f"{waiting_for}: another process holds {path} for more than {timeout:.0f} s")
            if not told:
                say(f"waiting for another process: {waiting_for}")
                told = True
            time.sleep(_POLL_SECONDS)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
