"""The worker processes of one node in one round: started together, watched together, ended together.

Each process leads a session of its own, so that a signal reaches what it has started too (data loaders, compilers).
Children that are not ours, which process 1 of a container inherits, are reaped and forgotten.

For POSIX systems. `reap()` is to be called after SIGCHLD; nothing here waits by itself except `stop()`.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from elasticjob.rendezvous.protocol import Failure
from elasticjob.rendezvous.worker import worker_failure

_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


class ProcessGroup:
    """Processes of one command, one for each local rank.

    Args:
        command: What to run.
        environments: The whole environment of each process, by local rank.

    Raises:
        OSError: The command cannot be started. Then none of the processes is left.
    """

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._first_failure: Failure | None = None
        self._stopping = False
        try:
            for environ in environments:
                process = subprocess.Popen(list(command), env=dict(environ), start_new_session=True)
                self._processes.append(process)
        except OSError:
            self.stop(grace=0.0)
            raise

    @property
    def failure(self) -> Failure | None:
        """How the first process that failed ended, None if none has."""
        return self._first_failure

    @property
    def running(self) -> bool:
        """Whether any process has not ended."""
        return any(process.returncode is None for process in self._processes)

    def send(self, number: int) -> None:
        """Send a signal to the processes that run, and to what they have started."""
        for process in self._processes:
            if process.returncode is None:
                _signal_session(process.pid, number)

    def tell(self, number: int) -> None:
        """Send a signal to the processes that run, but not to what they have started: a data loader would die of it."""
        for process in self._processes:
            if process.returncode is None:
                with suppress(PermissionError):
                    os.kill(process.pid, number)  # it has not been reaped, so the number is still its own

    def reap(self) -> None:
        """Take notice of every child that has ended, ours or inherited."""
        ours = {process.pid: (rank, process) for rank, process in enumerate(self._processes)}
        while (pid := _ended_child()) is not None:
            if pid in ours:
                self._ended(*ours[pid])
            else:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def stop(self, *, grace: float, number: int = signal.SIGTERM) -> None:
        """End all processes. What ends now is no failure.

        Args:
            grace: Seconds until whatever is left gets SIGKILL.
            number: The signal that asks them to end.
        """
        self._stopping = True
        self.send(number)
        deadline = time.monotonic() + grace
        while self.running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            self.reap()
        self.send(signal.SIGKILL)
        for process in self._processes:
            # One that hangs in the kernel, with a wedged device, cannot be killed.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)

    def _ended(self, rank: int, process: "subprocess.Popen[bytes]") -> None:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        succeeded = status is not None and status.si_code == os.CLD_EXITED and status.si_status == 0
        if self._stopping or not succeeded:
            # What it has started ends with it. While it is not reaped, no other session can have its number.
            _signal_session(process.pid, signal.SIGKILL)
        returncode = process.wait()
        if returncode != 0 and self._first_failure is None and not self._stopping:
            self._first_failure = worker_failure(returncode, f"worker with local rank {rank} (pid {process.pid})")


def _ended_child() -> int | None:
    try:
        status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if status is None else status.si_pid


def _signal_session(leader: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
