"""The `torchrun` handler: lets an unmodified torchrun (torch 2.6 and later) take part in a hosted rendezvous.

torchrun finds `handler_creator` through the entry point group `torchrun.handlers` and uses it for `--rdzv-backend
elasticjob`. This is the only module that imports torch.

Each round has a store of its own on the node of rank 0, and a MASTER_ADDR and MASTER_PORT of its own on every rank.
Nothing of a round outlives it, so no rank can hold on to the address of an earlier rank 0 and no key of an earlier
round can be read. A round counts once all of its nodes have met at its store: a node that is lost before sends the
others back to join again instead of leaving them in a read that blocks until it fails their agents.

How an agent ends when there is nothing to join:

- The run has succeeded: the process exits with code 0, by `SystemExit`. torchrun's own way out,
  `RendezvousGracefulExitError`, ends in an AttributeError and exit code 1 (pytorch#194710).
- The run ended otherwise, or this pod was given up: `RendezvousClosedError` with the operator's message, exit code 1.
"""

import atexit
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import api

from elasticjob.rendezvous import environment, errors
from elasticjob.rendezvous.address import local_address
from elasticjob.rendezvous.client import (
    JOIN_TIMEOUT,
    HostedRendezvousClient,
    Round,
    RunClosedError,
    StaleRoundError,
)
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.protocol import Failure, LeaveOutcome
from elasticjob.rendezvous.torch_failures import WorkerFailures
from elasticjob.rendezvous.worker import record_round

log = logging.getLogger(__name__)

BACKEND = "elasticjob"
"""Name of the handler, as in `--rdzv-backend`."""
STORE_TIMEOUT = timedelta(seconds=60)
"""Longest time that an agent waits for a key of its peers, except at the exit barrier, where torchrun sets its own."""
CONNECT_SECONDS = 10.0
"""Longest time that one attempt to reach the store of rank 0 takes."""
CHECK_SECONDS = 0.5
"""How often a node that waits for the others of its round looks whether the round is still to be."""
MAX_REJOIN_PAUSE_SECONDS = 3.0

_ARRIVED = "elasticjob/arrived"
_COMPLETE = "elasticjob/complete"
_TERMINATED = 128 + signal.SIGTERM


def handler_creator() -> Callable[[api.RendezvousParameters], api.RendezvousHandler]:
    """Entry point of the group `torchrun.handlers`: returns what makes a handler from torchrun's parameters."""
    return create_handler


def create_handler(params: api.RendezvousParameters) -> "HostedRendezvousHandler":
    """Make a handler from torchrun's parameters and the environment that the operator sets.

    Flags of torchrun win over the environment. `--rdzv-conf` knows `join_timeout`: seconds for which the nodes of
    rounds may fail to meet at the store of rank 0. The wait for a round is counted by the operator. One that does not
    answer is waited for as long as this too, but at least 15 minutes.

    Raises:
        ValueError: A parameter or a variable cannot work. The message names it and its value.
    """
    endpoint = server_endpoint(params.endpoint, os.environ)
    client = HostedRendezvousClient(
        endpoint=endpoint,
        run_id=params.run_id,
        address=params.local_addr or local_address(),
        token_file=_path(environment.TOKEN_FILE),
        ca_file=_path(environment.CA_FILE),
        join_timeout=_seconds(params, "join_timeout", JOIN_TIMEOUT),
    )
    return HostedRendezvousHandler(client)


def server_endpoint(text: str, environ: Mapping[str, str]) -> ServerEndpoint:
    """The server that torchrun's endpoint names; whether it speaks TLS is known from the environment.

    Raises:
        ValueError: The endpoint is missing or malformed.
    """
    url = environ.get(environment.ENDPOINT, "")
    tls = url.lower().startswith("https://") or bool(environ.get(environment.CA_FILE))
    return ServerEndpoint.parse(text or url, tls=tls)


class HostedRendezvousHandler(api.RendezvousHandler):  # type: ignore[misc]  # torch is not installed here
    """torchrun's view of a hosted rendezvous.

    Args:
        client: Takes part in the run.
        failures: Knows how local workers failed.
    """

    def __init__(self, client: HostedRendezvousClient, *, failures: WorkerFailures | None = None) -> None:
        self._client = client
        self._failures = failures or WorkerFailures()
        self._store: TCPStore | None = None
        self._disturbed = True
        self._left = False
        self._pid = os.getpid()
        self._failures.attach()
        # torchrun does not shut the rendezvous down when a signal ends it.
        atexit.register(self._leave_at_exit)

    def get_backend(self) -> str:
        """Name of the handler."""
        return BACKEND

    def get_run_id(self) -> str:
        """Identifies the run."""
        return self._client.run_id

    @property
    def use_agent_store(self) -> bool:
        """False: workers bring up a store of their own in each round, at a fresh MASTER_ADDR and MASTER_PORT."""
        return False

    def is_closed(self) -> bool:
        """Whether the operator said that the run has ended."""
        return self._client.is_closed()

    def set_closed(self) -> None:
        """Does nothing: a node can leave, but only the operator ends a run."""
        log.warning("a node cannot close run %s; delete or suspend the ElasticJob instead", self.get_run_id())

    def num_nodes_waiting(self) -> int:
        """More than 0 exactly if torchrun should restart its workers in a new round. Never blocks, never raises."""
        waiting = self._client.num_nodes_waiting()
        self._disturbed = waiting > 0
        return waiting

    def next_rendezvous(self) -> api.RendezvousInfo:
        """Wait until a round has formed and all of its nodes have met.

        Raises:
            RendezvousClosedError: The run has ended, but not well, or this pod was given up.
            RendezvousConnectionError: The operator, or the store of rank 0, cannot be reached in time.
            SystemExit: The run has succeeded (code 0), or this process got SIGTERM before torchrun handles it.
        """
        failure = self._failure()
        self._store = None
        with _sigterm_ends_this_process():
            try:
                info = self._meet(failure)
            except RunClosedError as error:
                _end(error)
            except errors.RendezvousError as error:
                raise _torch_error(error) from error
        self._disturbed = False
        return info

    def shutdown(self) -> bool:
        """Tell the operator that this node leaves, and why. Takes a few seconds at most, and closes nothing.

        torchrun calls this in a `finally`, so the exception that ends it, if any, tells what happened.
        """
        return self._leave(*self._outcome(sys.exc_info()[1]))

    def _meet(self, failure: Failure | None) -> api.RendezvousInfo:
        give_up: float | None = None
        while True:
            asked = time.monotonic()
            formed = self._client.join(failure)
            failure = None
            if give_up is not None:
                # How long the operator is away, or lets nodes wait, is no fault of the store.
                give_up += time.monotonic() - asked
            try:
                info = self._bootstrap(formed)
            except StaleRoundError as error:
                log.info("round %d is over before it began: %s", formed.round, error)
            except RuntimeError as error:
                # What the store raises. Joining again is what makes a new one.
                give_up = give_up or time.monotonic() + self._client.join_timeout
                if time.monotonic() >= give_up:
                    raise errors.RendezvousConnectionError(
                        f"no round came about, since the nodes did not meet at the store of rank 0: {error}"
                    ) from error
                log.warning("the nodes of round %d did not meet, joining again: %s", formed.round, error)
                time.sleep(random.uniform(0.0, MAX_REJOIN_PAUSE_SECONDS))
            else:
                record_round(formed.round)
                return info

    def _bootstrap(self, formed: Round) -> api.RendezvousInfo:
        self._store = self._open_store(formed)
        store = PrefixStore(f"elasticjob/{self.get_run_id()}/{formed.round}", self._store)
        if formed.rank == 0:
            # Set before rank 0 arrives, so that whoever passes finds it.
            bootstrap = api.RendezvousStoreInfo.build(0, store, self._client.address)
        self._wait_for_all(store, formed)
        if formed.rank != 0:
            bootstrap = api.RendezvousStoreInfo.build(formed.rank, store, self._client.address)
        return api.RendezvousInfo(store, formed.rank, formed.world_size, bootstrap)

    def _open_store(self, formed: Round) -> TCPStore:
        if formed.rank == 0:
            store = _tcp_store(self._client.address, 0, is_master=True)
            self._client.publish_endpoint(formed.round, self._client.address, store.port)
        else:
            store = _tcp_store(*self._client.fetch_endpoint(formed.round), is_master=False)
        store.set_timeout(STORE_TIMEOUT)
        return store

    def _wait_for_all(self, store: PrefixStore, formed: Round) -> None:
        if store.add(_ARRIVED, 1) == formed.world_size:
            store.set(_COMPLETE, b"1")
        while not self._is_complete(store):
            if self._client.num_nodes_waiting() > 0:
                raise StaleRoundError("a newer round is to form")

    def _is_complete(self, store: PrefixStore) -> bool:
        try:
            store.wait([_COMPLETE], timedelta(seconds=CHECK_SECONDS))
        except RuntimeError:
            # A time-out, or the store is gone; only the second fails this as well.
            return bool(store.check([_COMPLETE]))
        return True

    def _failure(self) -> Failure | None:
        """Why torchrun comes back: it does not say, but it comes back undisturbed only if its workers failed."""
        found = self._failures.take()
        if found is None and not self._disturbed:
            return Failure(exit_code=1, message="torchrun restarts its workers without a word why")
        return found

    def _outcome(self, error: BaseException | None) -> tuple[LeaveOutcome, int | None, str]:
        failure = self._failures.take()
        if failure is not None:
            return LeaveOutcome.FAILED, failure.exit_code, failure.message
        if error is None:
            return LeaveOutcome.SUCCEEDED, 0, ""
        return LeaveOutcome.LEFT, None, f"{type(error).__name__}: {error}"

    def _leave(self, outcome: LeaveOutcome, exit_code: int | None, message: str) -> bool:
        self._left = True
        self._store = None
        self._failures.detach()
        return self._client.leave(outcome, exit_code=exit_code, message=message)

    def _leave_at_exit(self) -> None:
        if not self._left and os.getpid() == self._pid:
            self._leave(LeaveOutcome.LEFT, None, "the agent was told to end")


def _tcp_store(host: str, port: int, *, is_master: bool) -> TCPStore:
    connect = timedelta(seconds=CONNECT_SECONDS)
    return TCPStore(host, port, None, is_master, timeout=connect, wait_for_workers=False)


def _end(error: RunClosedError) -> NoReturn:
    if error.succeeded:
        log.warning("%s; nothing is left to do here", error)
        raise SystemExit(0)
    raise api.RendezvousClosedError(str(error)) from error


def _torch_error(error: errors.RendezvousError) -> api.RendezvousError:
    for ours, theirs in _TORCH_ERRORS.items():
        if isinstance(error, ours):
            return theirs(str(error))
    return api.RendezvousError(str(error))


_TORCH_ERRORS: Mapping[type[errors.RendezvousError], type[Any]] = {
    errors.RendezvousClosedError: api.RendezvousClosedError,
    errors.RendezvousTimeoutError: api.RendezvousTimeoutError,
    errors.RendezvousConnectionError: api.RendezvousConnectionError,
    errors.RendezvousStateError: api.RendezvousStateError,
}


def _seconds(params: api.RendezvousParameters, name: str, default: float) -> float:
    value = params.get(name, default)
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0.0:
        raise ValueError(f"{name} in --rdzv-conf is {value!r}; it must be a number of seconds greater than 0")
    return seconds


def _path(name: str) -> Path | None:
    text = os.environ.get(name, "").strip()
    return Path(text) if text else None


@contextmanager
def _sigterm_ends_this_process() -> Iterator[None]:
    """Let SIGTERM end a process that waits for its first round.

    torchrun handles signals only once it has workers. Until then the default applies, which the kernel ignores for
    process 1 of a container: deleting a pod that waits would take its whole grace period.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(_TERMINATED)
