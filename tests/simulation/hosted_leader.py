"""One operator process of the simulated cluster: a coordinator over the fenced store, by a clock of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from elasticjob.rendezvous.coordinator import Answer, Coordinator, Persist, Verify, WaitResult
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore, LeadershipLostError
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.orders import RunOrders, RunState, is_served
from elasticjob.rendezvous.protocol import (
    ErrorCode,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ProtocolError,
)

from .hosted_calls import Call, EndpointQuery, Publication
from .hosted_store import FaultyBackend

if TYPE_CHECKING:
    from .hosted_world import World


class Leader:
    """One operator process. `paused` holds back everything that it does; its calls under way still reach the store."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.store = FencedStore(FaultyBackend(world.cell), source="the cell", epoch=epoch)
        self.coordinator: Coordinator | None = None
        self.orders = world.orders()
        self.is_dead = False
        self.is_paused = False
        self.known: dict[str, str] = {}
        """The agent of each pod whose word counts here: the last that joined, or else the first that was in peace."""
        self._offset, self._rate = world.rng.uniform(0, 1000), world.rng.uniform(0.95, 1.05)
        self._alarm = math.inf
        self._backlog: list[Callable[[], None]] = []
        self._held: dict[int, Call] = {}
        self._waiters = itertools.count(1)
        self._take_over()

    @property
    def now(self) -> float:
        """The time by this leader's clock."""
        return self._offset + self.world.now * self._rate

    def run(self, action: Callable[[], None]) -> None:
        """Do something in this process, now or when it goes on."""
        if self.is_dead:
            return
        if self.is_paused:
            self._backlog.append(action)
            return
        action()
        self._carry_out()

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)
        self.run(self._tick)

    def follow(self, orders: RunOrders) -> None:
        self.orders = orders
        if self.coordinator is not None:
            self.coordinator.follow(orders, self.now)

    def receive(self, call: Call) -> None:
        """One call of an agent."""
        coordinator, request, uid = self.coordinator, call.request, call.agent.pod.uid
        if coordinator is None:
            call.reply(ProtocolError(ErrorCode.NOT_READY, "no leader yet"))
            return
        try:
            if isinstance(request, JoinRequest):
                self._hold(call, request.wait, lambda waiter: coordinator.join(uid, request, waiter, self.now))
                self.known[uid] = request.incarnation
            elif isinstance(request, HeartbeatRequest):
                self._beat(coordinator, call, request)
            elif isinstance(request, EndpointQuery):
                self._hold(call, request.wait, lambda waiter: coordinator.await_endpoint(uid, request.round, waiter))
            elif isinstance(request, Publication):
                coordinator.publish(uid, request.round, request.request, self.now)
                self.world.check_published(self, uid, request)
                call.reply(None)
            elif isinstance(request, LeaveRequest):
                coordinator.leave(uid, request, self.now)
                call.reply(None)
        except ProtocolError as refusal:
            call.reply(refusal)

    def hang_up(self, call: Call, waiter: int) -> None:
        """The caller does not wait any more."""
        if self._held.pop(waiter, None) is not None and self.coordinator is not None:
            self.coordinator.hung_up(call.agent.pod.uid, waiter, self.now)

    def _beat(self, coordinator: Coordinator, call: Call, request: HeartbeatRequest) -> None:
        uid = call.agent.pod.uid
        answer = coordinator.heartbeat(uid, request, self.now)
        wait = min(request.wait, coordinator.longest_hold)
        if answer.tells_nothing and wait > 0:
            self._check_peace(uid, request)
            self._hold(call, wait, lambda waiter: coordinator.hold_beat(uid, waiter))
        else:
            self.world.check_heartbeat(uid, request, answer)
            call.reply(answer)

    def _hold(self, call: Call, wait: float, make: Callable[[int], None]) -> None:
        """Make a call, and hold it until it is answered or its time is over."""
        waiter, uid = next(self._waiters), call.agent.pod.uid
        self._held[waiter] = call
        try:
            make(waiter)
        except ProtocolError:
            del self._held[waiter]
            raise
        call.held.append((self, waiter))

        def over() -> None:
            if waiter in self._held and self.coordinator is not None:
                self.coordinator.poll_over(uid, waiter, self.now)
                self._carry_out()
                assert waiter not in self._held, "a call whose time is over was not answered"

        self.world.after(wait / self._rate, lambda: self.run(over))

    def _take_over(self) -> None:
        try:
            state = self.store.take_over()
        except RendezvousConnectionError:
            self.world.after(1.0, lambda: self.run(self._take_over))
            return
        except LeadershipLostError:
            self.is_dead = True
            return
        self.coordinator = Coordinator(self.orders, state, now=self.now)
        self._carry_out()

    def _tick(self) -> None:
        if self.coordinator is not None:
            self.coordinator.tick(self.now)

    def _carry_out(self) -> None:
        coordinator = self.coordinator
        if coordinator is None or self.is_dead:
            return
        for effect in coordinator.drain():
            if isinstance(effect, Answer):
                self._answer(effect.waiter, effect.result)
            elif isinstance(effect, Persist):
                self.world.check_decided(effect.state, coordinator.orders)
                self.world.after(self.world.delay(0.05), partial(self._save, effect.state))
            elif isinstance(effect, Verify):
                self._verify()
        self._check_held(coordinator)
        due = coordinator.next_deadline()
        if due is not None:
            assert due > self.now - 120, "a deadline was left behind"
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        """Tick then, or before. As in the host, a deadline that moves on leaves its earlier alarm to find nothing."""
        if due >= self._alarm:
            return
        self._alarm = due

        def ring() -> None:
            if self._alarm == due:
                self._alarm = math.inf
                self._tick_if_due()

        self.world.at(max((due - self._offset) / self._rate + 1e-6, self.world.now), lambda: self.run(ring))

    def _tick_if_due(self) -> None:
        assert self.coordinator is not None
        before = self.coordinator.next_deadline()
        self._tick()
        after = self.coordinator.next_deadline()
        if before is not None and before <= self.now:
            assert after is None or after > self.now, "the coordinator asks for the same tick again"

    def _answer(self, waiter: int, result: WaitResult) -> None:
        call = self._held.pop(waiter, None)
        if call is None:
            return
        self.world.check_answer(call, result)
        call.reply(result)

    def _check_peace(self, uid: str, request: HeartbeatRequest) -> None:
        """Of two agents of one pod only the one whose word counts is left in peace."""
        known = self.known.setdefault(uid, request.incarnation)
        assert known == request.incarnation, f"both {known} and {request.incarnation} of {uid} are left in peace"

    def _check_held(self, coordinator: Coordinator) -> None:
        """No heartbeat is held while there is something to tell its caller."""
        beats = [call for call in self._held.values() if isinstance(call.request, HeartbeatRequest)]
        if not beats:
            return
        assert coordinator.view(self.now).state is RunState.FORMED, "a heartbeat is held although there is news"
        for call in beats:
            assert call.request.round == coordinator.round  # type: ignore[attr-defined]
            assert is_served(self.orders.nodes.get(call.agent.pod.uid)), "a heartbeat of a dead pod is held"

    def _save(self, state: object) -> None:
        """The request reaches the store whatever becomes of its sender; only the outcome waits for a paused one."""
        if self.is_dead:
            return
        try:
            self.store.save(state)  # type: ignore[arg-type]
        except RendezvousConnectionError as error:
            message = str(error)
            self.run(lambda: self.coordinator.persist_failed(message))  # type: ignore[union-attr]
            self.world.after(self.world.delay(0.5), lambda: self.run(lambda: self._save(state)))
        except LeadershipLostError:
            assert self.epoch < self.world.cell.history[-1].epoch, "the newest leader gave up"
            self.is_dead = True
        else:
            self.run(lambda: self.coordinator.persisted(self.now))  # type: ignore[union-attr]

    def _verify(self) -> None:
        try:
            self.store.verify()
        except LeadershipLostError:
            self.is_dead = True
        except RendezvousConnectionError:
            return
