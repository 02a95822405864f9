"""One agent process of the simulated cluster, which behaves as the client library does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from elasticjob.rendezvous.protocol import (
    Endpoint,
    EndpointRequest,
    ErrorCode,
    Failure,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    LeaveOutcome,
    LeaveRequest,
    ProtocolError,
)

from .hosted_calls import Call, EndpointQuery, Pod, Publication

if TYPE_CHECKING:
    from .hosted_world import World


class Agent:
    """One agent process in a pod, as the client library behaves."""

    def __init__(self, world: World, pod: Pod, incarnation: str) -> None:
        self.world = world
        self.pod = pod
        self.incarnation = incarnation
        self.round = 0
        self.rank = -1
        self.world_size = 0
        self.is_training = False
        self.is_dead = False
        self.is_paused = False
        self.is_cut_off = False
        self.has_succeeded = False
        self.saw_closed = False
        self.endpoint: Endpoint | None = None
        self._backlog: list[Callable[[], None]] = []
        self._calls = 0
        self._due = 0.0
        self._patience = world.rng.choice((0.0, world.interval))
        self.join()

    def run(self, action: Callable[[], None]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._backlog.append(action)
        else:
            action()

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)

    def join(self, failure: Failure | None = None) -> None:
        self.is_training = False
        request = JoinRequest(
            incarnation=self.incarnation,
            address=f"10.0.0.{self.pod.index}",
            pid=1,
            round=self.round,
            failure=failure,
            wait=10,
        )
        self._call(request, lambda answer: self._joined(answer, failure), again=lambda: self.join(failure))

    def fail(self) -> None:
        """The workers of this node fail."""
        if self.is_training:
            self.join(Failure(exit_code=1))

    def leave(self, outcome: LeaveOutcome) -> None:
        self.is_training = False
        self.has_succeeded = outcome is LeaveOutcome.SUCCEEDED
        request = LeaveRequest(incarnation=self.incarnation, round=self.round, outcome=outcome)
        self.tell(request)
        self.is_dead = True

    def tell(self, request: object) -> None:
        """Make a call whose answer does not matter."""
        self.world.call(Call(agent=self, request=request, reply=lambda _: None))

    def pretend(self) -> None:
        """Call as if this were the agent in the newest round that is in this pod."""
        round = max(self.world.cell.rounds, default=0)
        beat = HeartbeatRequest(incarnation=self.incarnation, round=round, endpoint=self._own_endpoint(round))
        join = JoinRequest(incarnation=self.incarnation, address="10.0.0.99", pid=2, round=self.round, wait=1)
        leave = LeaveRequest(incarnation=self.incarnation, round=round, outcome=LeaveOutcome.LEFT)
        query = EndpointQuery(incarnation=self.incarnation, round=round, wait=1)
        held = replace(beat, wait=5)
        self.tell(self.world.rng.choice((beat, beat, held, join, leave, query, *2 * [self._publication(round)])))

    def _joined(self, answer: object, failure: Failure | None) -> None:
        if not isinstance(answer, JoinFormed):
            self._refused(answer, lambda: self.join(failure))
            return
        assert answer.round > self.round, f"agent of {self.pod.uid} was told round {answer.round} after {self.round}"
        self.round, self.rank, self.world_size = answer.round, answer.rank, answer.world_size
        self.is_training = True
        self.world.check_member(self.pod, answer)
        self.endpoint = self._own_endpoint(self.round) if self.rank == 0 else None
        self._share_endpoint(self.round)
        self._beat_later(self.world.now + self.world.delay(0.3))

    def overreach(self) -> None:
        """Publish for the newest round, whoever is rank 0 in it."""
        self.tell(self._publication(max(self.world.cell.rounds, default=0)))

    def _own_endpoint(self, round: int) -> Endpoint:
        """Says whose it is and for which round."""
        return Endpoint(address=self.pod.uid, port=round)

    def _publication(self, round: int) -> Publication:
        request = EndpointRequest(incarnation=self.incarnation, endpoint=self._own_endpoint(round))
        return Publication(round=round, request=request)

    def _share_endpoint(self, round: int, told: object = False) -> None:
        """Tell or learn where the store of the round listens, again and again until it was answered."""
        if isinstance(told, Endpoint):
            self.endpoint = told if round == self.round else self.endpoint
        if told is None or isinstance(told, Endpoint) or not self.is_training or round != self.round:
            return
        query = EndpointQuery(incarnation=self.incarnation, round=round, wait=5)
        request = self._publication(round) if self.rank == 0 else query
        settled: list[bool] = []

        def take(answer: object) -> None:
            if not settled:
                settled.append(True)
                pause = 0.0 if answer is None or isinstance(answer, Endpoint) else 0.5
                self.world.after(pause, lambda: self.run(lambda: self._share_endpoint(round, answer)))

        self.world.call(Call(agent=self, request=request, reply=take))
        self.world.after(8.0, lambda: take(False))

    def _beat_later(self, due: float) -> None:
        self.world.at(max(due, self.world.now + 0.05), partial(self.run, partial(self._beat, self.round)))

    def _beat(self, round: int) -> None:
        if self.is_training and round == self.round:
            endpoint = self.endpoint if self.rank == 0 else None
            request = HeartbeatRequest(
                incarnation=self.incarnation, round=round, endpoint=endpoint, wait=self._patience
            )
            self._due = self.world.now + self.world.interval
            self._call(request, self._beaten, again=lambda: self._beat(round))

    def _beaten(self, answer: object) -> None:
        if not self.is_training:
            return
        if isinstance(answer, ProtocolError):
            self._refused(answer, lambda: self._beat(self.round))
            return
        if answer.closed is not None:  # type: ignore[attr-defined]
            self._end()
        elif answer.evicted or answer.waiting:  # type: ignore[attr-defined]
            self.is_training = False
            self.world.after(self.world.delay(1.0), lambda: self.run(self.join))
        else:
            self._beat_later(self._due)

    def _refused(self, answer: object, again: Callable[[], None]) -> None:
        code = answer.code if isinstance(answer, ProtocolError) else None
        if code is ErrorCode.CLOSED:
            self._end()
        elif code is ErrorCode.FENCED:
            self.is_dead, self.is_training = True, False
            self.world.fenced(self)
        else:
            self.world.after(0.5 if code else 0.01, lambda: self.run(again))

    def _end(self) -> None:
        self.saw_closed, self.is_dead, self.is_training = True, True, False

    def _call(self, request: object, then: Callable[[object], None], *, again: Callable[[], None]) -> None:
        """One call: the first answer counts; without any in time the call is made again."""
        self._calls += 1
        number = self._calls
        settled = [False]
        is_beat = isinstance(request, HeartbeatRequest)

        def reply(answer: object) -> None:
            def take() -> None:
                if not settled[0] and number == self._calls:
                    settled[0] = True
                    then(answer)

            self.run(take)

        def give_up() -> None:
            if not settled[0] and number == self._calls:
                settled[0] = True
                self.world.hang_up(call)
                again()

        call = Call(agent=self, request=request, reply=reply)
        self.world.call(call)
        self.world.after(self._patience + 3.0 if is_beat else 15.0, lambda: self.run(give_up))
