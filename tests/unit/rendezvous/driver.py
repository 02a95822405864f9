"""Drives one coordinator by hand: pods and orders are set, calls are made, effects are carried out in memory."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

from elasticjob.rendezvous.coordinator import Answer, Coordinator, Effect, Persist, Record, WaitResult
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders, RunState
from elasticjob.rendezvous.protocol import (
    Endpoint,
    EndpointRequest,
    Failure,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    LeaveOutcome,
    LeaveRequest,
    ProtocolError,
)
from elasticjob.rendezvous.state import State


def facts(index: int, *, uid: str = "", phase: NodePhase = NodePhase.ALIVE, reason: str = "") -> NodeFacts:
    name = uid or f"uid-{index}"
    return NodeFacts(pod_uid=name, pod=f"digits-{index}-{name}", index=index, phase=phase, reason=reason)


class Driver:
    """One run with its leader. Time stands still unless `wait` moves it; writes succeed at once unless held up."""

    def __init__(self, nodes: int, *, min_nodes: int = 1, max_nodes: int = 8, state: State | None = None) -> None:
        self.now = 1000.0
        self.orders = RunOrders(
            run_id="run",
            namespace="train",
            job="digits",
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            expected=frozenset(range(nodes)),
            nodes={f"uid-{index}": facts(index) for index in range(nodes)},
        )
        self.coordinator = Coordinator(self.orders, state or State(round=1, epoch=7), now=self.now)
        self.answers: dict[int, WaitResult] = {}
        self.events: list[Record] = []
        self.writes: list[State] = []
        self.stored = state or State(round=1, epoch=7)
        self.writes_are_held_up = False
        self._waiters = itertools.count(1)
        self._rounds: dict[tuple[str, str], int] = {}
        self._carry_out()

    # -- the operator

    def order(self, **changes: object) -> None:
        self.orders = replace(self.orders, **changes)  # type: ignore[arg-type]
        self.coordinator.follow(self.orders, self.now)
        self._carry_out()

    def set_pods(self, *pods: NodeFacts, expected: Iterable[int] | None = None) -> None:
        """Add or replace pods by UID."""
        nodes = {**self.orders.nodes, **{pod.pod_uid: pod for pod in pods}}
        self.order(nodes=nodes, expected=self.orders.expected if expected is None else frozenset(expected))

    def delete_pods(self, *uids: str) -> None:
        self.order(nodes={uid: pod for uid, pod in self.orders.nodes.items() if uid not in uids})

    def close(self, reason: CloseReason, message: str = "") -> None:
        self.order(close=reason, close_message=message)

    def finish_write(self) -> None:
        self.writes_are_held_up = False
        self.stored = self.writes[-1]
        self.coordinator.persisted(self.now)
        self._carry_out()

    # -- time

    def wait(self, seconds: float, *, beating: Iterable[str] = ()) -> None:
        """Let time pass in steps of one second at most; the nodes named send a heartbeat in each."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            for uid in beating:
                self.beat(uid)
            self.tick()

    def tick(self) -> None:
        due = self.coordinator.next_deadline()
        while due is not None and due <= self.now:
            self.coordinator.tick(self.now)
            self._carry_out()
            later = self.coordinator.next_deadline()
            assert later is None or later > self.now or later != due, "the coordinator asks for the same tick again"
            due = later

    # -- the nodes

    def join(
        self,
        uid: str,
        *,
        round: int | None = None,
        failure: int | None = None,
        incarnation: str = "a",
        wait: float = 20.0,
    ) -> int:
        """Join; returns the waiter. The round defaults to what this agent was told last."""
        waiter = next(self._waiters)
        request = JoinRequest(
            incarnation=incarnation,
            address=f"10.0.0.{uid.removeprefix('uid-')}",
            pid=1,
            round=self._rounds.get((uid, incarnation), 0) if round is None else round,
            failure=None if failure is None else Failure(exit_code=failure),
            wait=wait,
        )
        try:
            self.coordinator.join(uid, request, waiter, self.now)
        finally:
            self._carry_out({waiter: (uid, incarnation)})
        return waiter

    def join_all(self, *uids: str, **options: object) -> list[int]:
        return [self.join(uid, **options) for uid in uids]  # type: ignore[arg-type]

    def beat(self, uid: str, *, round: int | None = None, incarnation: str = "a", port: int = 0) -> HeartbeatAnswer:
        known = self._rounds.get((uid, incarnation), 0) if round is None else round
        endpoint = Endpoint(address="10.0.0.1", port=port) if port else None
        request = HeartbeatRequest(incarnation=incarnation, round=known, endpoint=endpoint)
        try:
            return self.coordinator.heartbeat(uid, request, self.now)
        finally:
            self._carry_out()

    def hold_beat(self, uid: str, *, round: int | None = None) -> int:
        """Send a heartbeat that has nothing to tell and is held; returns the waiter."""
        assert self.beat(uid, round=round).tells_nothing
        waiter = next(self._waiters)
        self.coordinator.hold_beat(uid, waiter)
        self._carry_out()
        return waiter

    def leave(self, uid: str, outcome: LeaveOutcome, *, round: int | None = None, incarnation: str = "a") -> None:
        known = self._rounds.get((uid, incarnation), 0) if round is None else round
        self.coordinator.leave(uid, LeaveRequest(incarnation=incarnation, round=known, outcome=outcome), self.now)
        self._carry_out()
        self.tick()

    def publish(self, uid: str, round: int, *, port: int = 29500, incarnation: str = "a") -> None:
        request = EndpointRequest(incarnation=incarnation, endpoint=Endpoint(address="10.0.0.1", port=port))
        try:
            self.coordinator.publish(uid, round, request, self.now)
        finally:
            self._carry_out()

    def await_endpoint(self, uid: str, round: int) -> int:
        waiter = next(self._waiters)
        self.coordinator.await_endpoint(uid, round, waiter)
        self._carry_out()
        return waiter

    def poll_over(self, uid: str, waiter: int) -> WaitResult:
        self.coordinator.poll_over(uid, waiter, self.now)
        self._carry_out()
        return self.answers[waiter]

    def hang_up(self, uid: str, waiter: int) -> None:
        self.coordinator.hung_up(uid, waiter, self.now)
        self._carry_out()

    # -- what came of it

    def formed(self, waiter: int) -> JoinFormed:
        answer = self.answers.get(waiter)
        assert isinstance(answer, JoinFormed), answer
        return answer

    def refusal(self, waiter: int) -> ProtocolError:
        answer = self.answers.get(waiter)
        assert isinstance(answer, ProtocolError), answer
        return answer

    def told(self, waiter: int) -> HeartbeatAnswer:
        answer = self.answers.get(waiter)
        assert isinstance(answer, HeartbeatAnswer), answer
        return answer

    def names(self, name: str) -> list[Record]:
        return [event for event in self.events if event.name == name]

    def state(self) -> RunState:
        return self.coordinator.view(self.now).state

    def _carry_out(self, callers: dict[int, tuple[str, str]] | None = None) -> None:
        self._callers = {**getattr(self, "_callers", {}), **(callers or {})}
        while effects := self.coordinator.drain():
            for effect in effects:
                self._do(effect)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Answer):
            assert effect.waiter not in self.answers, "a call was answered twice"
            self.answers[effect.waiter] = effect.result
            if isinstance(effect.result, JoinFormed) and effect.waiter in self._callers:
                self._rounds[self._callers[effect.waiter]] = effect.result.round
        elif isinstance(effect, Record):
            self.events.append(effect)
        elif isinstance(effect, Persist):
            self.writes.append(effect.state)
            if not self.writes_are_held_up:
                self.stored = effect.state
                self.coordinator.persisted(self.now)
