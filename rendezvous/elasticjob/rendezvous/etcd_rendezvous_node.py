"""One node's part in the legacy etcd rendezvous of torch elastic, on etcd's v2 API, without its known faults.

All state of a run stands below `<prefix>/run_<run id>`, a directory that is kept alive while any node has a handler:

    rdzv/active_version       the round, see `etcd_rendezvous_state`
    rdzv/version_counter      the number of the newest round
    rdzv/v_<n>/rank_<r>       kept alive by each member of round n
    rdzv/v_<n>/waiting/<id>   kept alive by each node that waits for the round after n
    rdzv/v_<n>/kv/…           the store of round n

What differs from torch: a lost member is noticed by the other members, not only by a node that waits; nodes that stop
waiting are no longer counted, and neither are those that would not fit in; `shutdown()` leaves the run and only
`set_closed()` ends it; a refresher thread survives any exception; a member that comes back ends the round at once.
"""

import logging
import random
import time
import uuid
from collections.abc import Callable

from elasticjob.rendezvous import etcd_rendezvous_state as rounds
from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys, Node
from elasticjob.rendezvous.backends.extras import ThirdParty
from elasticjob.rendezvous.backends.keys import key_segment
from elasticjob.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.etcd_refresh import keep_directory, keep_key
from elasticjob.rendezvous.etcd_rendezvous_state import Round, Status
from elasticjob.rendezvous.etcd_store import EtcdStore
from elasticjob.rendezvous.keep_alive import KeepAlive
from elasticjob.rendezvous.store import cas_delay

# Seconds to live, as in torch.
SETUP_TTL = 5
FROZEN_TTL = 10
JOINABLE_TTL = 10
KEEP_ALIVE_TTL = 10
RUN_TTL = 7200

_REFRESH_PARTS = 3
_BEAT_SECONDS = 5.0
"""How long a beat that is under way may take to end. One that ended later would bring back a key that is deleted."""
_LONGEST_RETRY_PAUSE = 1.0
_logger = logging.getLogger(__name__)


class _StartOver(Exception):  # noqa: N818 - not an error: what we were doing was overtaken by others
    """The round has become another one; look at it afresh."""


class EtcdRendezvous:
    """One node's part in the rendezvous of a run. Used by one thread."""

    def __init__(
        self,
        client: ThirdParty,
        prefix: str,
        run_id: object,
        num_min_workers: int,
        num_max_workers: int,
        timeout: float,
        last_call_timeout: float,
    ) -> None:
        """Send nothing yet.

        Args:
            client: An `etcd.Client` of python-etcd.
            prefix: Directory of all runs.
            run_id: Any text; also a number, as torch allows here.
            num_min_workers: Fewest nodes in a round.
            num_max_workers: Most nodes in a round.
            timeout: Seconds that a round may take to form.
            last_call_timeout: Seconds to wait for more nodes once the fewest have joined.

        Raises:
            ValueError: The run id cannot be used.
        """
        self.client = client
        self._keys = EtcdV2Keys(client)
        self._root = f"/{prefix.strip('/')}/run_{key_segment(str(run_id))}".replace("//", "/")
        self._run_id = str(run_id)
        self._minimum = num_min_workers
        self._maximum = num_max_workers
        self._timeout = timeout
        self._last_call_timeout = last_call_timeout
        self._node = uuid.uuid4().hex
        self._deadline = 0.0
        self._member_of: tuple[int, int] | None = None
        self._run_keep_alive: KeepAlive | None = None
        self._rank_keep_alive: KeepAlive | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    def rendezvous_barrier(self) -> tuple[int, int, int]:
        """Wait until a round is complete that this node is in.

        Returns:
            Version of the round, rank of this node, number of nodes.

        Raises:
            RendezvousClosedError: The run is closed.
            RendezvousTimeoutError: No round was complete in time.
            RendezvousConnectionError: etcd could not be reached until the time was over.
            RendezvousStateError: The stored state is corrupt.
        """
        self._deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._leave_round()
                self._keep_run()
                return self._attempt()
            except _StartOver:
                self._remaining()
            except RendezvousConnectionError as error:
                if time.monotonic() >= self._deadline:
                    raise
                _logger.warning("rendezvous of run %r interrupted, trying again: %s", self._run_id, error)
                time.sleep(random.uniform(0, _LONGEST_RETRY_PAUSE))
            except RendezvousTimeoutError:
                self._withdraw()
                raise

    def get_round(self) -> Round | None:
        """The round as it is now.

        Raises:
            RendezvousConnectionError: etcd cannot be reached.
            RendezvousStateError: The stored state is corrupt.
        """
        return self._read()[0]

    def num_waiting(self) -> int:
        """More than 0 if this node, having been in a complete round, should meet the others again.

        A lost member is noticed here: whoever sees it first ends the round.
        """
        current, node, _ = self._read()
        if current is None or node is None:
            return 0 if self._member_of is None else 1
        if current.status is not Status.FINAL:
            return 0 if self._member_of is None or current.status is Status.CLOSED else 1
        if self._member_of is not None and current.version != self._member_of[0]:
            return 1
        if self._ended_by_loss(current, node):
            return 1
        waiting = len(self._keys.names_in(self._path(f"v_{current.version}/waiting")))
        return rounds.admissible(current, waiting, maximum=self._maximum)

    def set_closed(self) -> None:
        """End the run for all nodes, whatever the round is doing.

        Raises:
            RendezvousConnectionError: etcd cannot be reached.
            RendezvousStateError: The stored state is corrupt.
        """
        while True:
            current, node, _ = self._read()
            if current is not None and current.status is Status.CLOSED:
                return
            if self._write(node, rounds.closed(current)):
                return
            cas_delay()

    def leave(self) -> None:
        """Take this node out of its round; the others go on, and form another round without it."""
        try:
            self._leave_round()
        finally:
            if self._run_keep_alive is not None:
                self._run_keep_alive.stop()
                self._run_keep_alive = None

    def setup_kv_store(self, rdzv_version: int) -> EtcdStore:
        """The store that only the members of this round use."""
        return EtcdStore(self.client, self._path(f"v_{rdzv_version}/kv"))

    def _attempt(self) -> tuple[int, int, int]:
        current, node, index = self._read()
        if current is None or node is None:
            self._create_round()
            raise _StartOver
        if current.status is Status.CLOSED:
            raise RendezvousClosedError(f"the rendezvous of run {self._run_id!r} is closed")
        if current.status is Status.JOINABLE:
            return self._join(current.version)
        if current.status is Status.FINAL:
            self._wait_for_next(current.version)
        else:
            self._wait(index)
        raise _StartOver

    def _create_round(self) -> None:
        setup = self._keys.create(self._active, rounds.encode(Round(status=Status.SETUP)), ttl=SETUP_TTL)
        if setup is None:
            return
        version = self._next_version()
        self._write(setup, Round(status=Status.JOINABLE, version=version))

    def _next_version(self) -> int:
        key = self._path("version_counter")
        while True:
            node = self._keys.read(key)
            version = 1 if node is None else self._counter(node) + 1
            if self._keys.swap(key, node, str(version)) is not None:
                return version
            cas_delay()

    def _counter(self, node: Node) -> int:
        try:
            return int(node.value or "")
        except ValueError as error:
            raise self._corrupt(node.key, error) from error

    def _join(self, version: int) -> tuple[int, int, int]:
        self._change(Status.JOINABLE, version, lambda now: rounds.joined(now, self._node, maximum=self._maximum))
        frozen = self._await_frozen(version)
        rank = frozen.participants.index(self._node)
        self._rank_keep_alive = self._kept(self._path(f"v_{version}/rank_{rank}"), "etcd keep-alive")
        self._member_of = (version, rank)
        self._change(Status.FROZEN, version, lambda now: rounds.confirmed(now, self._node))
        final = self._await_status(Status.FINAL, while_in=Status.FROZEN, version=version)
        return version, rank, len(final.participants)

    def _await_frozen(self, version: int) -> Round:
        last_call_ends: float | None = None
        while True:
            current, node, index = self._read()
            if current is None or node is None or current.version != version:
                raise _StartOver
            if self._node not in current.participants or current.status not in (Status.JOINABLE, Status.FROZEN):
                raise _StartOver
            if current.status is Status.FROZEN:
                return current
            if not rounds.times_last_call(current, self._node, minimum=self._minimum):
                last_call_ends = None
                self._wait(index)
                continue
            last_call_ends = last_call_ends or time.monotonic() + self._last_call_timeout
            self._time_last_call(current, node, last_call_ends)

    def _time_last_call(self, current: Round, node: Node, ends: float) -> None:
        left = ends - time.monotonic()
        if left <= 0:
            self._write(node, rounds.frozen(current))
        elif (renewed := self._write(node, current)) is not None:
            self._wait(renewed.etcd_index, at_most=min(left, JOINABLE_TTL / _REFRESH_PARTS))

    def _await_status(self, wanted: Status, *, while_in: Status, version: int) -> Round:
        while True:
            current, _, index = self._read()
            if current is None or current.version != version or current.status not in (wanted, while_in):
                raise _StartOver
            if current.status is wanted:
                return current
            self._wait(index)

    def _wait_for_next(self, version: int) -> None:
        """Wait, visible to the members, until the complete round has ended; end it if a member is lost."""
        key = self._path(f"v_{version}/waiting/{self._node}")
        refresher = self._kept(key, "waiting node")
        try:
            while True:
                current, node, index = self._read()
                if current is None or node is None or (current.status, current.version) != (Status.FINAL, version):
                    return
                if self._ended_by_loss(current, node):
                    return
                self._wait(index, at_most=KEEP_ALIVE_TTL / _REFRESH_PARTS)
        finally:
            refresher.stop(wait=_BEAT_SECONDS)
            self._keys.delete(key)

    def _ended_by_loss(self, current: Round, node: Node) -> bool:
        directory = self._path(f"v_{current.version}")
        alive = self._keys.names_in(directory)
        lost = [r for r in range(len(current.participants)) if f"{directory}/rank_{r}" not in alive]
        if lost:
            _logger.warning("round %d of run %r has lost its ranks %s", current.version, self._run_id, lost)
            # Somebody else may have been faster; either way this round is over.
            self._keys.delete(self._active, index=node.index)
        return bool(lost)

    def _leave_round(self) -> None:
        """End the round this node is a member of, if it is still the current one."""
        if self._rank_keep_alive is not None:
            self._rank_keep_alive.stop(wait=_BEAT_SECONDS)
            self._rank_keep_alive = None
        if self._member_of is None:
            return
        version, rank = self._member_of
        self._keys.delete(self._path(f"v_{version}/rank_{rank}"))
        current, node, _ = self._read()
        over = (Status.FINAL, Status.FROZEN)
        if current is not None and node is not None and current.version == version and current.status in over:
            self._keys.delete(self._active, index=node.index)
        self._member_of = None

    def _withdraw(self) -> None:
        """Give up a place in a round that is still joinable, so that nobody counts on this node."""
        try:
            current, node, _ = self._read()
            if current is not None and current.status is Status.JOINABLE and self._node in current.participants:
                self._write(node, rounds.left(current, self._node))
            self._leave_round()
        except RendezvousError as error:
            _logger.warning("could not withdraw from the rendezvous of run %r: %s", self._run_id, error)

    def _change(self, status: Status, version: int, step: Callable[[Round], Round]) -> None:
        while True:
            self._remaining()
            current, node, _ = self._read()
            if current is None or node is None or (current.status, current.version) != (status, version):
                raise _StartOver
            if self._write(node, step(current)) is not None:
                return
            cas_delay()

    def _read(self) -> tuple[Round | None, Node | None, int]:
        node, index = self._keys.lookup(self._active)
        if node is None:
            return None, None, index
        try:
            return rounds.decode(node.value), node, index
        except ValueError as error:
            raise self._corrupt(self._active, error) from error

    def _corrupt(self, key: str, error: ValueError) -> RendezvousStateError:
        return RendezvousStateError(f"key {key} in etcd at {self._keys.endpoint} is corrupt: {error}")

    def _write(self, old: Node | None, new: Round) -> Node | None:
        return self._keys.swap(self._active, old, rounds.encode(new), ttl=self._ttl(new))

    def _ttl(self, current: Round) -> int | None:
        if current.status is Status.FROZEN:
            return FROZEN_TTL
        if current.status is Status.JOINABLE and len(current.participants) >= self._minimum:
            return JOINABLE_TTL
        return None

    def _wait(self, index: int, at_most: float | None = None) -> None:
        remaining = self._remaining()
        timeout = remaining if at_most is None else min(at_most, remaining)
        self._keys.wait_for_change(self._active, after=index, timeout=timeout)

    def _remaining(self) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise RendezvousTimeoutError(f"no round of run {self._run_id!r} was complete within {self._timeout:g} s")
        return remaining

    def _keep_run(self) -> None:
        if self._run_keep_alive is None:
            self._run_keep_alive = keep_directory(self._keys, self._root, ttl=RUN_TTL, name="etcd run directory")

    def _kept(self, key: str, name: str) -> KeepAlive:
        return keep_key(self._keys, key, self._node, ttl=KEEP_ALIVE_TTL, name=name)

    @property
    def _active(self) -> str:
        return self._path("active_version")

    def _path(self, name: str) -> str:
        return f"{self._root}/rdzv/{name}"
