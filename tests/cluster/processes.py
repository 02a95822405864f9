"""Starting, finding and ending the processes of a cluster.

The invariant: every process that belongs to a cluster carries the cluster's directory in its environment, from the
moment it exists, and so do its children. What a crash left behind is therefore found without any record, and nothing
else is ever touched. (Containers get a clean environment from runc: these are found by their cgroup, see `cgroups`.)
A process that is written down is identified by its id *and* start time, since ids are reused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError

CLUSTER_TAG = "ELASTICJOB_TEST_CLUSTER"
NODE_TAG = "ELASTICJOB_TEST_NODE"
_POLL_SECONDS = 0.05
_TAIL_LINES = 25
# How long a process may take to become another program: it is in the kernel meanwhile, but not always on a CPU.
_EXEC_SECONDS = 5.0
_EXEC_POLL_SECONDS = 0.001
_PROC = Path("/proc")
# In front of a command: the program is asked to end when the process that starts it ends, however that comes about.
ENDS_WITH_STARTER = ("setpriv", "--pdeathsig", "TERM")


@dataclass(frozen=True)
class ProcessId:
    """A process, told apart from a later one with the same number by its start time (in clock ticks since boot)."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether exactly this process still runs; a zombie does not."""
        return _start_time(self.pid) == self.started


def identify(pid: int) -> ProcessId:
    """The identity of a process that runs now."""
    started = _start_time(pid)
    if started is None:
        raise ClusterError(f"process {pid} does not run")
    return ProcessId(pid=pid, started=started)


def parse_start_time(stat: str) -> int | None:
    """The start time in a line of /proc/<pid>/stat, or None for a process that has ended and was not yet reaped."""
    # The program's name stands in parentheses and may itself hold blanks and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else started


def _start_time(pid: int) -> int | None:
    try:
        return parse_start_time((_PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


@dataclass(frozen=True)
class Started:
    """A process of ours with the file that takes its output."""

    component: str
    identity: ProcessId
    log: Path

    def check_alive(self) -> None:
        """Raise with the end of the log when the process is gone."""
        if not self.identity.alive():
            raise ClusterError(f"{self.component} ended; the end of {self.log}:\n{log_tail(self.log)}")


def start(
    component: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    tags: Mapping[str, str],
) -> Started:
    """Start a program in the background, in a session of its own, so that no terminal's Ctrl-C reaches it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **tags},
            cwd="/",
            start_new_session=True,
        )
    _children[process.pid] = process
    try:
        identity = identify(process.pid)
    except ClusterError:
        raise ClusterError(f"{component} ended at once; the end of {log}:\n{log_tail(log)}") from None
    return Started(component=component, identity=identity, log=log)


# Children of this very process must be waited for, or they stay zombies as long as it runs.
_children: dict[int, subprocess.Popen[bytes]] = {}


def reap() -> None:
    """Collect the exit codes of children that have ended."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]


def log_tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(lines[-_TAIL_LINES:])


def wait_until(
    ready: Callable[[], bool],
    *,
    what: str,
    timeout: float,
    watched: Iterable[Started] = (),
    poll: float = _POLL_SECONDS,
) -> None:
    """Wait for a condition; fails at once when a watched process ends, and with its log's end after `timeout`."""
    processes = tuple(watched)
    deadline = time.monotonic() + timeout
    while not ready():
        reap()
        for process in processes:
            process.check_alive()
        if time.monotonic() > deadline:
            tails = "".join(f"\n--- {p.component} ({p.log})\n{log_tail(p.log)}" for p in processes)
            raise ClusterError(f"{what}: not after {timeout:.0f} s{tails}")
        time.sleep(poll)


def tagged(tags: Mapping[str, str]) -> list[int]:
    """The ids of all living processes whose environment holds all these settings."""
    wanted = {f"{name}={value}".encode() for name, value in tags.items()}
    return [pid for pid in _all_pids() if wanted <= _environment(pid) and _start_time(pid) is not None]


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> set[bytes]:
    deadline = time.monotonic() + _EXEC_SECONDS
    while True:
        try:
            # In this order: what is read from a program that has begun is all of it.
            is_settled = not _is_starting(pid) or time.monotonic() > deadline
            found = (_PROC / str(pid) / "environ").read_bytes()
            if found or is_settled:
                return set(found.split(b"\0"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return set()
        time.sleep(_EXEC_POLL_SECONDS)


def _is_starting(pid: int) -> bool:
    """Whether a process is just becoming another program: its environment reads as empty until that has begun."""
    # Kernel threads have no program at all; there the link cannot be read.
    (_PROC / str(pid) / "exe").readlink()
    return not has_code((_PROC / str(pid) / "stat").read_text())


def has_code(stat: str) -> bool:
    """Whether a line of /proc/<pid>/stat tells where the program begins: known once its environment is in place."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return int(fields[23]) != 0


def kill_all(find: Callable[[], Iterable[int]], *, what: str, timeout: float = 30.0) -> None:
    """Kill whatever `find` returns until it returns nothing more (what gets killed may have been forking)."""

    def none_left() -> bool:
        found = list(find())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        return not found

    wait_until(none_left, what=f"ending {what}", timeout=timeout)
