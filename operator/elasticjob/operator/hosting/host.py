"""Hosts the rendezvous of all runs: owns their coordinators, on one event loop.

The operator's other threads call `apply`, `view` and `forget`, which only leave a note or read a snapshot. Everything
else happens on the loop: calls of workers, one timer for all runs, and the effects of the coordinators. State is read
and written by a few threads, one call a run at a time; a leader that finds a newer epoch in a state falls silent for
that run, and says so if the lease shows that it was replaced.

Invariants:

- No effect of a coordinator is carried out twice or out of order.
- A heartbeat costs no I/O, no task and no timer.
- A run whose state is corrupt is shown as failed, is not served and is never overwritten; it is read again from time to
  time for as long as the operator keeps the run: it ends the job when it sees the failure.
"""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from elasticjob.operator.hosting.calls import HangUp, HeldCalls
from elasticjob.operator.hosting.erased import Erased
from elasticjob.operator.hosting.notes import Gone, Note, Notes
from elasticjob.operator.hosting.records import Recorder, Sink
from elasticjob.operator.hosting.state import Answered, BackendFactory, Run, StateKeeper, Told
from elasticjob.operator.hosting.timers import Timers
from elasticjob.operator.hosting.views import Views
from elasticjob.operator.metrics import Metrics
from elasticjob.rendezvous.coordinator import Answer, Changed, Coordinator, Persist, Record, Verify, Waiter
from elasticjob.rendezvous.orders import RunOrders, RunView
from elasticjob.rendezvous.protocol import (
    EndpointRequest,
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ProtocolError,
    shorten,
)
from elasticjob.rendezvous.state import State

log = logging.getLogger(__name__)

T = TypeVar("T")

_NAMED_LIMIT = 64
_REPLACED = "another operator leads"
AFTER_FAULT = 1.0
"""Seconds until a run is looked at again whose decision failed unexpectedly."""


@dataclass(frozen=True, kw_only=True)
class HostLimits:
    """What the host may use.

    Args:
        io_threads: How many states are read or written at the same time.
        io_patience: Seconds after which an access to a state that does not end is shown as trouble.
        held_calls: How many calls are held open at the same time.
    """

    io_threads: int = 8
    io_patience: float = 10.0
    held_calls: int = 20_000


async def _never() -> bool:
    return False


class Host:
    """Implements `elasticjob.operator.ports.RendezvousHost`.

    Args:
        epoch: The fencing epoch of this leader.
        backend_factory: Makes the backend that keeps a run's state; called in a thread of the pool.
        on_change: Called from the loop's thread with namespace and name of a job whose view changed.
        on_lost: Called from the loop's thread when a state and the lease show that somebody else leads.
        require_leadership: Raises if this process may not write (any more); asked before each access to a state.
        holds_lease: Tells whether the lease, read now, is this leader's. Asked when a state has a newer epoch.
        sink: Where RdzvEvents go.
        metrics: Where to count.
    """

    def __init__(
        self,
        *,
        epoch: int,
        backend_factory: BackendFactory,
        on_change: Callable[[str, str], None],
        on_lost: Callable[[str], None],
        require_leadership: Callable[[], object] = lambda: None,
        holds_lease: Callable[[], Awaitable[bool]] = _never,
        sink: Sink | None = None,
        limits: HostLimits | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = epoch
        self.refusals: Counter[str] = Counter()
        """How many calls were refused, by error code."""
        self._on_lost = on_lost
        self._limits = limits or HostLimits()
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._recorder = Recorder(sink, dropped=self._metrics.facts_dropped.inc)
        self._notes = Notes(self._take_note)
        self._runs: dict[str, Run] = {}
        self._dormant: dict[str, Run] = {}
        """Runs without nodes whose job is still there, and whose state is to be erased with it."""
        self._run_of_pod: dict[str, str] = {}
        self._erased = Erased()
        self._timers = Timers(self._tick, clock=clock)
        self._calls = HeldCalls(most=self._limits.held_calls, carry_out=self._carry_out, clock=clock)
        self._views = Views(epoch=epoch, on_change=on_change, clock=clock)
        self._states = StateKeeper(
            epoch=epoch,
            backend_factory=backend_factory,
            require_leadership=require_leadership,
            holds_lease=holds_lease,
            threads=self._limits.io_threads,
            patience=self._limits.io_patience,
            metrics=self._metrics,
            told=Told(
                taken_over=self._taken_over,
                saved=self._saved,
                in_trouble=self._in_trouble,
                corrupt=self._corrupt,
                in_doubt=self._in_doubt,
                lost=self._lose,
            ),
        )

    # -- from any thread

    def apply(self, orders: RunOrders) -> None:
        """Take over what is wanted of one run."""
        self._notes.post(orders.run_id, orders)

    def forget(self, run_id: str) -> None:
        """Drop a run that has no nodes (any more)."""
        self._notes.post(run_id, None)

    def erase(self, orders: RunOrders) -> None:
        """Drop a run whose job is gone, and its state as far as the cluster does not see to that."""
        self._notes.post(orders.run_id, Gone(orders))

    def view(self, run_id: str) -> RunView | None:
        """What the run looks like now; None while it is not known here."""
        return self._views.get(run_id)

    # -- life

    async def start(self) -> None:
        """Begin on the running loop; orders that were given before are taken over now."""
        self._recorder.start()
        self._metrics.connected_nodes.set_function(lambda: self._calls.count)
        self._metrics.participants.set_function(self._views.participants)
        self._views.start()
        self._timers.start()
        self._notes.start()

    async def stop(self) -> None:
        """End: calls that are held open are told to come back. Writes under way are not waited for."""
        self._notes.stop()
        self._timers.stop()
        self._calls.stop()
        await self._states.stop()
        self.release()
        self._views.stop()
        self._recorder.stop()

    def release(self) -> None:
        """Tell all calls that are held open to come back, to whoever leads then."""
        for run in self._runs.values():
            self._calls.release(run, ProtocolError(ErrorCode.NOT_READY, "this operator ends"))

    # -- calls of workers, on the loop

    def authorize(self, run_id: str, *, namespace: str, pod_uid: str) -> None:
        """Check that the pod does not belong elsewhere.

        Raises:
            ProtocolError: `forbidden`, if it is another run's, or of another namespace.
        """
        run = self._runs.get(run_id)
        owner = self._run_of_pod.get(pod_uid) or self._erased.run_of(pod_uid) or run_id
        if owner != run_id or (run is not None and run.orders.namespace != namespace):
            self._note_misdirected(owner, pod_uid, run_id)
            raise ProtocolError(
                ErrorCode.FORBIDDEN, shorten(f"this pod has no part in run {run_id}; its own is {owner}")
            )

    def _note_misdirected(self, run_id: str, pod_uid: str, named: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and named != run_id and pod_uid not in run.misdirected:
            run.misdirected[pod_uid] = named[:_NAMED_LIMIT]
            self._views.show_soon(run)

    def join(self, run_id: str, pod_uid: str, request: JoinRequest, *, answered: Answered) -> HangUp:
        """Wait, for as long as the request says, to be in a formed round. Answers `JoinFormed` or `JoinWaiting`."""
        run, coordinator = self._serving(run_id)
        run.misdirected.pop(pod_uid, None)

        def call(waiter: Waiter) -> None:
            self._call(run, lambda: coordinator.join(pod_uid, request, waiter, self._clock()))

        return self._calls.hold(run, pod_uid, request.wait, call, answered)

    def heartbeat(
        self, run_id: str, pod_uid: str, request: HeartbeatRequest, *, answered: Answered
    ) -> HeartbeatAnswer | HangUp:
        """Note that a member is alive.

        While there is nothing to tell it, the answer is held as the request allows; then it comes by `answered`.
        """
        run, coordinator = self._serving(run_id)
        answer = self._beat(run, lambda: coordinator.heartbeat(pod_uid, request, self._clock()))
        if answer.evicted:
            self._metrics.stale_calls.labels("heartbeat").inc()
        wait = min(request.wait, coordinator.longest_hold)
        if wait <= 0 or not answer.tells_nothing or self._calls.is_full(run, pod_uid):
            return answer

        def call(waiter: Waiter) -> None:
            self._beat(run, lambda: coordinator.hold_beat(pod_uid, waiter))

        return self._calls.hold(run, pod_uid, wait, call, answered)

    def leave(self, run_id: str, pod_uid: str, request: LeaveRequest) -> None:
        """Note that a node leaves."""
        run, coordinator = self._serving(run_id)
        if not self._call(run, lambda: coordinator.leave(pod_uid, request, self._clock())):
            self._metrics.stale_calls.labels("leave").inc()

    def publish(self, run_id: str, pod_uid: str, round: int, request: EndpointRequest) -> None:
        """Note where the store of a round's rank 0 listens."""
        run, coordinator = self._serving(run_id)
        self._call(run, lambda: coordinator.publish(pod_uid, round, request, self._clock()))

    def endpoint(self, run_id: str, pod_uid: str, round: int, *, wait: float, answered: Answered) -> HangUp:
        """Wait to learn where the store of a round's rank 0 listens. Answers `Endpoint`."""
        run, coordinator = self._serving(run_id)

        def call(waiter: Waiter) -> None:
            self._call(run, lambda: coordinator.await_endpoint(pod_uid, round, waiter))

        return self._calls.hold(run, pod_uid, wait, call, answered)

    def _serving(self, run_id: str) -> tuple[Run, Coordinator]:
        run = self._runs.get(run_id)
        if run is None:
            raise self._erased.refusal(run_id)
        if run.is_silent or run.coordinator is None:
            why = _REPLACED if run.is_silent else run.error or "the state of the run is being read"
            raise ProtocolError(ErrorCode.NOT_READY, shorten(why))
        return run, run.coordinator

    def _call(self, run: Run, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            self._carry_out(run)

    def _beat(self, run: Run, call: Callable[[], T]) -> T:
        """Make a call that moves deadlines to later times only, so that mostly nothing has to be carried out."""
        try:
            return call()
        finally:
            if run.coordinator is not None and not run.coordinator.is_idle:
                self._carry_out(run)

    def count_refusal(self, refusal: ProtocolError) -> ProtocolError:
        """Note that a call was refused."""
        self.refusals[refusal.code.value] += 1
        self._metrics.calls_refused.labels(refusal.code.value).inc()
        return refusal

    # -- orders

    def _take_note(self, run_id: str, note: Note) -> None:
        run = self._runs.get(run_id)
        if note is None or isinstance(note, Gone):
            self._drop(run_id, note)
        elif run is None:
            self._begin(note)
        else:
            with self._contained(run):
                self._follow(run, note)

    @contextlib.contextmanager
    def _contained(self, run: Run) -> Iterator[None]:
        """A fault in deciding about one run must not keep the others from being served."""
        try:
            yield
        except Exception:
            log.exception("serving a run failed", extra=run.log_fields)
            self._timers.set(run.orders.run_id, self._clock() + AFTER_FAULT)

    def _begin(self, orders: RunOrders) -> None:
        self._dormant.pop(orders.run_id, None)
        run = self._runs[orders.run_id] = Run(orders=orders)
        self._run_of_pod.update(dict.fromkeys(orders.nodes, orders.run_id))
        self._states.take_over(run)

    def _follow(self, run: Run, orders: RunOrders) -> None:
        for uid in run.orders.nodes.keys() - orders.nodes.keys():
            self._run_of_pod.pop(uid, None)
            run.misdirected.pop(uid, None)
        self._run_of_pod.update(dict.fromkeys(orders.nodes, orders.run_id))
        run.orders = orders
        self._go_on(run)

    def _go_on(self, run: Run) -> None:
        if run.coordinator is not None and not run.is_silent and not run.is_forgotten:
            run.coordinator.follow(run.orders, self._clock())
            self._carry_out(run)

    def _drop(self, run_id: str, gone: Gone | None) -> None:
        run = self._runs.pop(run_id, None)
        self._views.drop(run_id)
        if gone is not None:
            self._erased.add(gone.orders if run is None else run.orders)
        if run is None:
            if gone is not None:
                # One that never ran under this leader, suspended or finished, may have a state all the same.
                self._states.erase(self._dormant.pop(run_id, Run(orders=gone.orders)))
            return
        run.is_forgotten = True
        if gone is not None:
            self._states.erase(run)
        elif run.store is not None and run.store.is_erasable:
            self._dormant[run_id] = Run(orders=run.orders, store=run.store, access=run.access)
        for uid in run.orders.nodes:
            self._run_of_pod.pop(uid, None)
        self._calls.release(run, self._erased.refusal(run_id))

    # -- effects

    def _carry_out(self, run: Run) -> None:
        coordinator = run.coordinator
        if coordinator is None or run.is_silent or run.is_forgotten:
            return
        for effect in coordinator.drain():
            if isinstance(effect, Answer):
                self._calls.answer(run, effect)
            elif isinstance(effect, Persist):
                self._states.save(run, effect.state)
            elif isinstance(effect, Record):
                self._recorder.record(run.orders.run_id, effect)
                if effect.detector:
                    self._metrics.loss_silence.labels(effect.detector).observe(effect.silence)
            elif isinstance(effect, Changed):
                self._views.show_soon(run)
            elif isinstance(effect, Verify):
                self._states.verify(run)
        self._timers.set(run.orders.run_id, coordinator.next_deadline())

    def _tick(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.coordinator is not None:
            with self._contained(run):
                run.coordinator.tick(self._clock())
                self._carry_out(run)

    # -- what becomes of the state

    def _taken_over(self, run: Run, state: State) -> None:
        run.error = run.trouble = ""
        run.coordinator = Coordinator(run.orders, state, now=self._clock())
        self._carry_out(run)
        self._views.show_soon(run)

    def _saved(self, run: Run) -> None:
        assert run.coordinator is not None
        run.error = ""
        before = run.coordinator.round
        run.coordinator.persisted(self._clock())
        self._carry_out(run)
        formed_by = run.coordinator.formed_by
        if run.coordinator.round > before and formed_by is not None:
            self._metrics.rounds.labels(formed_by[0]).inc()
            self._metrics.round_seconds.observe(formed_by[1])

    def _in_trouble(self, run: Run, message: str) -> None:
        log.warning("state of a run: %s", message, extra=run.log_fields)
        if run.coordinator is not None:
            run.coordinator.persist_failed(message)
            self._carry_out(run)
        elif run.trouble != message:
            run.trouble = shorten(message)
            self._views.show_soon(run)

    def _corrupt(self, run: Run, message: str) -> None:
        if run.error != message:
            run.error = shorten(message)
            log.error("state of a run: %s", message, extra=run.log_fields)
            self._views.show_soon(run)
        if run.is_silent and not run.is_lost:
            run.is_silent = False
            self._views.show_soon(run)
            with self._contained(run):
                self._go_on(run)

    def _in_doubt(self, run: Run) -> None:
        """Somebody else may lead: nothing is answered for this run until that is known."""
        run.is_silent = True
        self._calls.release(run, ProtocolError(ErrorCode.NOT_READY, _REPLACED))
        if not run.error:
            self._views.drop(run.orders.run_id)

    def _lose(self, run: Run, message: str) -> None:
        """Somebody else leads: nothing is answered for this run any more."""
        if run.is_lost:
            return
        self._in_doubt(run)
        run.is_lost = True
        self._views.drop(run.orders.run_id)
        log.warning("a run is lost: %s", message, extra=run.log_fields)
        self._on_lost(message)
