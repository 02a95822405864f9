"""The rendezvous of nodes that agree among themselves, over a backend that keeps one value by compare-and-set.

The logic is in `state` (what the rules are), `peer` (how one node applies them) and `peer_driver` (how it retries).
Here is what a caller sees: it waits, beats in the background, and turns whatever can go wrong into a typed error.

What differs from torch elastic, on purpose:

- Leaving is not closing. An agent that ends well calls `shutdown()` with no exception on its way: the job is done, and
  that closes the run, as in torch. With an exception on its way only this node leaves, and the others form a new round.
  The option `close_on_shutdown` settles it either way; `set_closed()` always ends the run for everybody.
- `num_nodes_waiting()` is positive exactly if this node must re-join: also after another one left or was lost, and not
  for spares that have no place.
- Training goes on during an outage of the backend. A node that was removed meanwhile learns so from
  `num_nodes_waiting()` as soon as the backend answers again.
- `use_agent_store` is False: each round gets a fresh meeting point from its own rank 0.
"""

import itertools
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from elasticjob.events import NodeState, construct_and_record_rdzv_event
from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from elasticjob.rendezvous.keep_alive import KeepAlive
from elasticjob.rendezvous.local_node import new_node
from elasticjob.rendezvous.narration import label, tell
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.peer import Intent, Peer, Rules, Step
from elasticjob.rendezvous.peer_driver import PeerDriver, Timing
from elasticjob.rendezvous.round_store import round_store
from elasticjob.rendezvous.settings import RendezvousSettings, RendezvousTimeout
from elasticjob.rendezvous.state import Limits, Node, State, nodes_waiting
from elasticjob.rendezvous.store import Store

__all__ = [
    "DynamicRendezvousHandler",
    "RendezvousBackend",
    "RendezvousSettings",
    "RendezvousTimeout",
    "Timing",
    "Token",
    "create_handler",
]

logger = logging.getLogger(__name__)

_ROLL_BACK_SECONDS = 5.0


class DynamicRendezvousHandler(RendezvousHandler):
    """The rendezvous as seen by one node. Calls may come from any thread."""

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
    ) -> "DynamicRendezvousHandler":
        """Make a handler for a new node.

        Args:
            run_id: Id of the run.
            store: Store of the run; each round returns its own part of it.
            backend: Keeps the state.
            min_nodes: Fewest nodes that a round may have.
            max_nodes: Most nodes that a round may have.
            local_addr: Address under which the other nodes reach this one; by default that of the pod or of the
                interface that leads outwards.
            timeout: How long the steps may take.
            keep_alive_interval: Seconds between two heartbeats.
            keep_alive_max_attempt: So many intervals without a heartbeat make a node count as dead.

        Raises:
            ValueError: A value cannot be used. The message gives it.
        """
        settings = RendezvousSettings(
            run_id=run_id,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            timeout=timeout or RendezvousTimeout(),
            keep_alive_interval=timedelta(seconds=keep_alive_interval),
            keep_alive_max_attempt=keep_alive_max_attempt,
        )
        return cls(settings=settings, store=store, backend=backend, node=new_node(local_addr))

    def __init__(
        self,
        *,
        settings: RendezvousSettings,
        store: Store,
        backend: RendezvousBackend,
        node: Node,
        close_on_shutdown: bool | None = None,
        timing: Timing | None = None,
    ) -> None:
        timing = timing or Timing()
        self._settings = settings
        self._store = store
        self._backend_name = backend.name
        self._node = node
        self._close_on_shutdown = close_on_shutdown
        self._sleep = timing.sleep
        self._peer = Peer(
            backend,
            node,
            _rules(settings),
            source=f"the state of run {settings.run_id!r} in backend {backend.name!r}",
            clock=timing.clock,
        )
        self._driver = PeerDriver(self._peer, settings, timing=timing, told=_StepRecorder(node, settings.run_id))
        self._beats = KeepAlive(self._beat, name=f"RendezvousKeepAliveTimer_{node.local_id}")

    @property
    def settings(self) -> RendezvousSettings:
        """The settings of the rendezvous."""
        return self._settings

    @property
    def use_agent_store(self) -> bool:
        """Always False; see the module."""
        return False

    def get_backend(self) -> str:
        """See base class."""
        return self._backend_name

    def get_run_id(self) -> str:
        """See base class."""
        return self._settings.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """See base class. A backend that cannot be reached is tried again until the join time-out is over."""
        with self._telling_failures("next_rendezvous"):
            message = f"The node '{label(self._node)}' attempts to join the next round of the rendezvous '{self._id}'."
            self._record("next_rendezvous", message)
            logger.info(message)
            try:
                info = self._join_until_bootstrapped()
            except BaseException:
                self._beats.stop()
                raise
        message = (
            f"The node '{label(self._node)}' has joined round {self._peer.round} of the rendezvous '{self._id}' "
            f"as rank {info.rank} in a world of size {info.world_size}."
        )
        self._record("next_rendezvous", message, rank=info.rank)
        logger.info(message)
        return info

    def is_closed(self) -> bool:
        """See base class."""
        with self._telling_failures("is_closed"):
            wait = self._settings.timeout.heartbeat.total_seconds()
            return self._driver.step(Intent.WATCH, wait=wait).after.closed is not None

    def set_closed(self) -> None:
        """See base class.

        Raises:
            RendezvousTimeoutError: It could not be closed within the close time-out.
        """
        with self._telling_failures("set_closed"):
            self._close()

    def num_nodes_waiting(self) -> int:
        """See base class. During an outage of the backend the answer is what was known before it.

        Raises:
            RendezvousConnectionError: The backend has never answered yet.
            RendezvousStateError: The stored state is corrupt.
        """
        with self._telling_failures("num_nodes_waiting"):
            state = self._driver.recent_state()
        if self._peer.round is not None:
            return nodes_waiting(state, round=self._peer.round)
        return 0 if state.complete or state.closed is not None else len(state.participants)

    def shutdown(self) -> bool:
        """Leave the rendezvous or close it; the module says which. Takes the close time-out at most, whatever hangs."""
        self._beats.stop()
        ends_well = sys.exc_info()[0] is None
        try:
            if ends_well if self._close_on_shutdown is None else self._close_on_shutdown:
                self._close()
            else:
                self._driver.finish(Intent.LEAVE, self._settings.timeout.close.total_seconds())
        except RendezvousError as error:
            message = (
                f"The node '{label(self._node)}' has failed to shut down the rendezvous '{self._id}' due to an error "
                f"of type {type(error).__name__}."
            )
            self._record("shutdown", message, NodeState.FAILED)
            logger.warning("%s %s", message, error)
            return False
        return True

    @property
    def _id(self) -> str:
        return self._settings.run_id

    def _join_until_bootstrapped(self) -> RendezvousInfo:
        """Join rounds until one is complete whose rank 0 has also told where its members meet."""
        deadline = self._driver.deadline(self._settings.timeout.join.total_seconds())
        while True:
            state = self._join(deadline)
            self._peer.enter_round(state)
            store = round_store(self._store, self._id, state.round)
            rank = list(state.participants).index(self._node.key)
            if rank == 0 or self._is_bootstrapped(store, state, deadline):
                meeting = RendezvousStoreInfo.build(rank, store, local_addr=self._node.address)
                return RendezvousInfo(store, rank, len(state.participants), meeting)

    def _is_bootstrapped(self, store: Store, state: State, deadline: float) -> bool:
        """Wait for rank 0 to write the meeting point; False if the round is over before that."""
        keys = (RendezvousStoreInfo.MASTER_ADDR_KEY, RendezvousStoreInfo.MASTER_PORT_KEY)
        while hasattr(store, "check") and not store.check(keys):
            if nodes_waiting(self._driver.recent_state(), round=state.round):
                return False
            if not self._driver.left(deadline):
                raise RendezvousTimeoutError(
                    f"Rank 0 of round {state.round} of the rendezvous '{self._id}' has not told its address within "
                    f"{self._settings.timeout.join.total_seconds():g} s."
                )
            self._driver.wait_for_news(state, deadline)
        return True

    def _join(self, deadline: float) -> State:
        """Wait until a round is complete that this node is in.

        A spare waits without a limit, for it may be needed much later; the time-out begins when it gets a place.
        """
        driver, failures = self._driver, itertools.count()
        while True:
            try:
                step = driver.step(Intent.JOIN, wait=driver.left(deadline))
            except RendezvousConnectionError as error:
                driver.note_outage(error)
                if not driver.left(deadline):
                    raise
                driver.back_off(next(failures), self._peer.known, deadline, at_least=error.retry_after)
                continue
            self._beats.start(driver.next_beat())
            state = step.after
            self._raise_if_closed(state)
            if self._peer.is_in(state):
                return state
            if self._node.key in state.spares:
                deadline = driver.deadline(self._settings.timeout.join.total_seconds())
            if not driver.left(deadline):
                raise self._join_timeout(state)
            if step.written:
                failures = itertools.count()
                driver.wait_for_news(state, deadline)
            else:
                driver.back_off(next(failures), state, deadline)

    def _join_timeout(self, state: State) -> RendezvousTimeoutError:
        try:
            self._driver.finish(Intent.LEAVE, _ROLL_BACK_SECONDS)
        except RendezvousError as error:
            logger.warning("The node '%s' could not take back its join: %s", label(self._node), error)
        return RendezvousTimeoutError(
            f"The rendezvous '{self._id}' was not complete within {self._settings.timeout.join.total_seconds():g} s: "
            f"{len(state.participants)} of at least {self._settings.min_nodes} node(s) had joined round {state.round}."
        )

    def _raise_if_closed(self, state: State) -> None:
        if state.closed is None:
            return
        if self._node.key in state.spares:
            raise RendezvousGracefulExitError(f"The rendezvous '{self._id}' has ended; this spare was not needed.")
        raise RendezvousClosedError(f"The rendezvous '{self._id}' is closed: {state.closed}.")

    def _close(self) -> None:
        self._driver.finish(Intent.CLOSE, self._settings.timeout.close.total_seconds())
        message = f"The node '{label(self._node)}' has closed the rendezvous '{self._id}'."
        self._record("close", message, NodeState.SUCCEEDED)
        logger.info(message)

    def _beat(self) -> float:
        """One heartbeat; says in how many seconds the next one is due."""
        if self._driver.beat():
            message = f"The node '{label(self._node)}' has failed to send a heartbeat to the rendezvous '{self._id}'."
            self._record("keep_alive", message, NodeState.FAILED)
        return self._driver.next_beat()

    @contextmanager
    def _telling_failures(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._record(name, f"{type(error).__name__}: {error}", NodeState.FAILED)
            raise

    def _record(
        self, name: str, message: str, node_state: NodeState = NodeState.RUNNING, rank: int | None = None
    ) -> None:
        _record(self._node, self._id, f"{type(self).__name__}.{name}", message, node_state, rank)


class _StepRecorder:
    """Records what the steps of a node mean. Not a method of the handler: nothing may keep that alive."""

    def __init__(self, node: Node, run_id: str) -> None:
        self._node = node
        self._run_id = run_id

    def __call__(self, step: Step) -> None:
        for telling in tell(step, self._node, self._run_id):
            name = f"{DynamicRendezvousHandler.__name__}.{telling.name}"
            _record(self._node, self._run_id, name, telling.message, telling.node_state)


def _record(node: Node, run_id: str, name: str, message: str, node_state: NodeState, rank: int | None = None) -> None:
    construct_and_record_rdzv_event(
        run_id=run_id,
        message=message,
        node_state=node_state,
        name=name,
        hostname=node.name or node.address,
        pid=node.pid,
        local_id=node.local_id,
        rank=rank,
    )


def _rules(settings: RendezvousSettings) -> Rules:
    return Rules(
        limits=Limits(min_nodes=settings.min_nodes, max_nodes=settings.max_nodes),
        last_call=settings.timeout.last_call.total_seconds(),
        interval=settings.keep_alive_interval.total_seconds(),
        attempts=settings.keep_alive_max_attempt,
    )


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """Make a handler from parameters.

    Options, with their defaults: `join_timeout` (600 s), `last_call_timeout` (30 s), `close_timeout` (30 s),
    `heartbeat_timeout` (5 s), `keep_alive_interval` (5 s), `keep_alive_max_attempt` (3), `cas_backoff_max_seconds`
    (chosen by the number of nodes) and `close_on_shutdown` (whether no exception is on its way).

    Args:
        store: Store of the run.
        backend: Keeps the state.
        params: Everything else.

    Raises:
        ValueError: An option cannot be used. The message names it.
    """
    try:
        return DynamicRendezvousHandler(
            settings=RendezvousSettings.from_parameters(params),
            store=store,
            backend=backend,
            node=new_node(params.local_addr),
            close_on_shutdown=params.get_as_bool("close_on_shutdown"),
        )
    except Exception as error:
        construct_and_record_rdzv_event(
            run_id=params.run_id, message=f"{type(error).__name__}: {error}", node_state=NodeState.FAILED
        )
        raise
