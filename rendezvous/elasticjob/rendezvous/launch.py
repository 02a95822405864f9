"""Run a training command on the nodes of an ElasticJob without torch.

    python -m elasticjob.rendezvous.launch [--nproc N] -- command [argument ...]

The launcher joins the hosted rendezvous, starts the command once for each local rank with the environment variables
that torchrun made usual, and starts it anew in a new round whenever a worker fails or the membership changes. How
often workers may fail is the operator's decision: it closes the run when the budget is spent.

| variable | value |
|---|---|
| `RANK`, `WORLD_SIZE` | global rank of the process, number of processes |
| `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | the same on this node |
| `GROUP_RANK`, `GROUP_WORLD_SIZE` | rank of the node, number of nodes |
| `MASTER_ADDR`, `MASTER_PORT` | node of rank 0 and a port that was free there; new in each round |
| `ELASTICJOB_ROUND` | number of the round, only ever rises |
| `ELASTICJOB_RESTART_COUNT` | how often the command was started anew on this node |

All nodes must run the same number of processes, since ranks are numbered by it.

Exit code: 0 when all local workers ended with 0 or the run has succeeded without this node; that of the worker (128 +
number for a signal) when the run is closed after a failure; 128 + number when a signal ends the launcher; else 1.
It works as process 1 of a container.

SIGUSR1 and SIGUSR2 are passed on to the workers, whose meaning they have; without workers they are dropped.
"""

import argparse
import logging
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from elasticjob.rendezvous import environment
from elasticjob.rendezvous.address import free_port, local_address
from elasticjob.rendezvous.client import (
    JOIN_TIMEOUT,
    LEAST_PATIENCE_SECONDS,
    HostedRendezvousClient,
    Round,
    RunClosedError,
    StaleRoundError,
)
from elasticjob.rendezvous.environment import NodeEnvironment
from elasticjob.rendezvous.errors import RendezvousError
from elasticjob.rendezvous.process_group import ProcessGroup
from elasticjob.rendezvous.protocol import Failure, LeaveOutcome
from elasticjob.rendezvous.worker import record_round

log = logging.getLogger("elasticjob.rendezvous.launch")

GRACE_SECONDS = 20.0
"""Time between SIGTERM and SIGKILL for workers; less than the 30 s that Kubernetes gives a pod by default."""
WATCH_SECONDS = 0.25
"""How often the launcher looks what the last heartbeat said. A child that ends or a signal wakes it at once."""

_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_CANNOT_START = 127
_USAGE = 2
_NVIDIA_DEVICE = re.compile(r"nvidia\d+")


class SignalReceivedError(Exception):
    """A signal told this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Turns signals into something that one thread can wait for, and that can interrupt it where it may be."""

    def __init__(self) -> None:
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._received: int | None = None
        self._to_pass_on: list[int] = []
        self._interruptible = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGCHLD, the signals that end a process and those that are for its workers."""
        before = {number: signal.getsignal(number) for number in (*_END_SIGNALS, *_PASSED_ON, signal.SIGCHLD)}
        old_fd = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            for number in before:
                signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)
            self._woken.close()
            self._waker.close()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within this block a signal that ends the process interrupts whatever runs, by an exception."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def check(self) -> None:
        """Raise if a signal has told this process to end."""
        if self._received is not None:
            raise SignalReceivedError(self._received)

    def take(self) -> list[int]:
        """The signals for the workers that have arrived since this was last called."""
        taken, self._to_pass_on = self._to_pass_on, []
        return taken

    def wait(self, timeout: float) -> None:
        """Wait until any signal arrives, at most `timeout` seconds."""
        ready, _, _ = select.select([self._woken], [], [], timeout)
        if ready:
            self._woken.recv(4096)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return
        if number in _PASSED_ON:
            self._to_pass_on.append(number)
            return
        self._received = self._received or number
        if self._interruptible:
            self._interruptible = False
            raise SignalReceivedError(number)


@dataclass(kw_only=True)
class Launcher:
    """Runs the workers of one node through the rounds of a run.

    Args:
        client: Takes part in the run.
        command: What each worker runs.
        nproc: Number of workers on this node.
        grace: Seconds between SIGTERM and SIGKILL when workers are stopped.
        signals: Delivers the signals of this process.
    """

    client: HostedRendezvousClient
    command: Sequence[str]
    nproc: int
    grace: float
    signals: Signals
    _starts: int = 0
    _failure: Failure | None = None

    def run(self) -> int:
        """Take part until the workers have finished, the run has ended, or a signal arrives.

        Returns:
            The exit code of the launcher.
        """
        try:
            return self._rounds()
        except RunClosedError as error:
            return self._closed(error)
        except RendezvousError as error:
            return self._give_up(str(error), self._exit_code())
        except SignalReceivedError as error:
            log.warning("told to end by %s", error)
            self.client.leave(LeaveOutcome.LEFT, message=f"the launcher received {error}")
            return 128 + error.number
        except OSError as error:
            return self._give_up(f"cannot run {self.command[0]}: {error}", _CANNOT_START)

    def _rounds(self) -> int:
        report: Failure | None = None
        while True:
            with self.signals.interrupting():
                formed, master = self._meet(report)
            report = None
            group = self._start(formed, master)
            try:
                finished = self._watch(group)
            except SignalReceivedError as error:
                group.stop(grace=self.grace, number=error.number)
                raise
            group.stop(grace=self.grace)
            if finished:
                self.client.leave(LeaveOutcome.SUCCEEDED, exit_code=0)
                return 0
            if group.failure is not None:
                report = self._failure = group.failure
                log.error("%s in round %d", report.message, formed.round)

    def _meet(self, report: Failure | None) -> tuple[Round, tuple[str, int]]:
        while True:
            formed = self.client.join(report)
            report = None
            try:
                return formed, self._master(formed)
            except StaleRoundError as error:
                log.info("round %d is over before it began: %s", formed.round, error)

    def _master(self, formed: Round) -> tuple[str, int]:
        if formed.rank != 0:
            return self.client.fetch_endpoint(formed.round)
        master = (self.client.address, free_port())
        self.client.publish_endpoint(formed.round, *master)
        return master

    def _start(self, formed: Round, master: tuple[str, int]) -> ProcessGroup:
        log.info("round %d: this node has rank %d of %d", formed.round, formed.rank, formed.world_size)
        record_round(formed.round)
        environments = [
            {**os.environ, **worker_environ(formed, master, local_rank, self.nproc, self._starts)}
            for local_rank in range(self.nproc)
        ]
        self._starts += 1
        self.signals.take()  # what came for workers that are no more is not for the new ones
        return ProcessGroup(self.command, environments)

    def _watch(self, group: ProcessGroup) -> bool:
        """Wait for the end of the round. Returns whether the workers have finished their work."""
        while True:
            group.reap()
            self.signals.check()
            for number in self.signals.take():
                group.tell(number)
            if group.failure is not None:
                return False
            if not group.running:
                return True
            if self.client.num_nodes_waiting() > 0:
                log.info("the membership changes; the workers are started anew")
                return False
            self.signals.wait(WATCH_SECONDS)

    def _closed(self, error: RunClosedError) -> int:
        if error.succeeded:
            log.info("%s; nothing is left to do here", error)
            return 0
        return self._give_up(str(error), self._exit_code())

    def _give_up(self, why: str, exit_code: int) -> int:
        log.error("%s", why)
        self.client.leave(LeaveOutcome.FAILED, exit_code=exit_code, message=why)
        return exit_code

    def _exit_code(self) -> int:
        return 1 if self._failure is None else self._failure.exit_code


def worker_environ(
    formed: Round, master: tuple[str, int], local_rank: int, nproc: int, restarts: int
) -> dict[str, str]:
    """The variables that tell a worker its place.

    Args:
        formed: The round.
        master: Address and port where rank 0 is to listen.
        local_rank: Number of the worker on this node.
        nproc: Number of workers on each node.
        restarts: How often the workers of this node were started before.
    """
    return {
        "RANK": str(formed.rank * nproc + local_rank),
        "WORLD_SIZE": str(formed.world_size * nproc),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(nproc),
        "GROUP_RANK": str(formed.rank),
        "GROUP_WORLD_SIZE": str(formed.world_size),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        environment.ROUND: str(formed.round),
        environment.RESTART_COUNT: str(restarts),
    }


def count_processes(nproc: str) -> int:
    """Turn `auto`, `gpu`, `cpu` or a number into a number. `auto` means a process for each GPU, else for each CPU.

    Raises:
        ValueError: It is none of these, or there is no GPU.
    """
    gpus = sum(1 for device in Path("/dev").glob("nvidia*") if _NVIDIA_DEVICE.fullmatch(device.name))
    if nproc == "gpu" and gpus == 0:
        raise ValueError("one process for each GPU was asked for, but there is no GPU (/dev/nvidia0) on this node")
    if nproc in ("auto", "gpu") and gpus > 0:
        return gpus
    if nproc in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    if not (nproc.isascii() and nproc.isdigit() and int(nproc) >= 1):
        raise ValueError(f"the number of processes is {nproc!r}; it must be a positive number, auto, gpu or cpu")
    return int(nproc)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = _options(arguments)
    try:
        node = NodeEnvironment.from_environ(os.environ)
        nproc = count_processes(options.nproc or node.nproc_per_node)
        client = HostedRendezvousClient(
            endpoint=node.endpoint,
            run_id=node.run_id,
            address=node.pod_ip or local_address(),
            token_file=node.token_file,
            ca_file=node.ca_file,
            join_timeout=options.join_timeout,
        )
    except ValueError as error:
        log.error("%s", error)  # noqa: TRY400 - the traceback says nothing
        return _USAGE
    signals = Signals()
    with signals.handled():
        launcher = Launcher(client=client, command=options.command, nproc=nproc, grace=options.grace, signals=signals)
        return launcher.run()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m elasticjob.rendezvous.launch",
        description="Run a training command on the nodes of an ElasticJob.",
    )
    parser.add_argument(
        "--nproc", help=f"processes on each node: a number, auto, gpu or cpu (${environment.NPROC_PER_NODE})"
    )
    parser.add_argument(
        "--grace", type=float, default=GRACE_SECONDS, help="seconds from SIGTERM to SIGKILL (%(default)g)"
    )
    parser.add_argument(
        "--join-timeout",
        type=float,
        default=JOIN_TIMEOUT,
        help="seconds without an answer of the operator after which the launcher gives up, "
        f"but never before {LEAST_PATIENCE_SECONDS:g} (%(default)g)",
    )
    parser.add_argument("command", nargs="+", help="what to run, after --")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
