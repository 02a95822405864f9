"""The processes of a pod as the machine sees them: the nodes of the test cluster share its kernel.

What is found by the pod's UID in the path of a cgroup belongs to that very pod, not to a later one of its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")
_SANDBOX = b"/pause"


def processes_of(pod_uid: str) -> Sequence[int]:
    """Ids of the processes of a pod's containers, without the one that only holds the pod's network."""
    numbers = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [number for number in numbers if f"/pod{pod_uid}/" in _read(number, "cgroup") and not _is_sandbox(number)]


def signal_pod(pod_uid: str, number: signal.Signals) -> None:
    """Send a signal to every process of a pod."""
    found = processes_of(pod_uid)
    assert found, f"no process of pod {pod_uid} runs"
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


@contextlib.contextmanager
def paused(pod_uid: str) -> Iterator[None]:
    """Let no process of a pod run meanwhile, as on a machine that hangs; then they go on as if nothing had been."""
    signal_pod(pod_uid, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_pod(pod_uid, signal.SIGCONT)


def _is_sandbox(number: int) -> bool:
    return _read(number, "cmdline").split("\0")[0].encode() == _SANDBOX


def _read(number: int, name: str) -> str:
    try:
        return (_PROC / str(number) / name).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
