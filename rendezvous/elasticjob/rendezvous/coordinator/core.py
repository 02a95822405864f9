"""The coordinator of one run: decides rounds from orders, calls and time.

Pure: no I/O, no clock. Every method takes `now` in monotonic seconds; what is to be done is collected as effects, which
the host takes by `drain` after each call and carries out in order. A call that cannot be answered at once is held open
under the `waiter` that the host gave it. A refused call raises `ProtocolError`.

Invariants:

- Nobody is told a round before it is stored, and nobody is told that the run is closed before that is stored.
- Round numbers never fall. A caller that is not in the newest round is told so, whatever it asks.
- The run is closed by order of the operator and by nothing else; it never opens again.
- Each node that waits is in the next round, or is told why not.
- No heartbeat is held while there is something to tell its caller.
"""

from collections.abc import Iterable
from functools import lru_cache

from elasticjob.events.api import NodeState
from elasticjob.rendezvous.coordinator.announcements import run_is_closed
from elasticjob.rendezvous.coordinator.effects import Answer, Changed, Effect, Record, Verify, Waiter
from elasticjob.rendezvous.coordinator.incident import describe_failure
from elasticjob.rendezvous.coordinator.membership import Membership
from elasticjob.rendezvous.coordinator.sessions import Session, dead
from elasticjob.rendezvous.coordinator.verdict import Detector
from elasticjob.rendezvous.coordinator.view import view_of
from elasticjob.rendezvous.orders import NodeFacts, NodePhase, RunOrders, RunView, is_served
from elasticjob.rendezvous.protocol import (
    MAX_WAIT_SECONDS,
    Closed,
    EndpointRequest,
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinRequest,
    LeaveOutcome,
    LeaveRequest,
    ProtocolError,
)
from elasticjob.rendezvous.state import State, nodes_waiting

LEFT_GRACE = 5.0
"""Seconds after a member said that it leaves until it counts as lost, unless its pod tells the outcome before."""
STALL = 1.0
"""A tick that is later than this many seconds shows that this process stood still; nodes are given that time."""


class Coordinator:
    """One run.

    Args:
        orders: What the operator wants of the run.
        state: The stored state, with this leader's epoch already in it.
    """

    def __init__(self, orders: RunOrders, state: State, *, now: float) -> None:
        self._members = Membership(orders, state, now=now)
        self._rounds = self._members.rounds
        self._store_error = ""
        self._refused: set[str] = set()
        self._beats: dict[str, Waiter] = {}
        """Heartbeats that are held open, by pod UID."""

    @property
    def orders(self) -> RunOrders:
        return self._members.orders

    @property
    def closed(self) -> Closed | None:
        """Set once the end of the run is stored."""
        return self._members.closed

    @property
    def round(self) -> int:
        """Number of the newest formed round, 0 before the first."""
        return self._rounds.newest

    @property
    def formed_by(self) -> tuple[str, float] | None:
        """What made the newest round necessary, in one word, and how many seconds it took; None before the first."""
        opening, seconds = self._rounds.opening, self._rounds.seconds
        return None if opening is None or seconds is None else (opening.value, seconds)

    def view(self, now: float) -> RunView:
        """What the run looks like."""
        return view_of(self._members, store_error=self._store_error, now=now)

    def next_deadline(self) -> float | None:
        """When `tick` is to be called next; None if nothing is due."""
        if self._rounds.pending is not None or self._rounds.state.closed is not None:
            return None
        return min((due for due in (self._members.scan_at, *self._members.deadlines) if due is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done."""
        return not self._members.effects and not (self._beats and self._has_news)

    def drain(self) -> list[Effect]:
        """Take what is to be done."""
        if self._beats and self._has_news:
            self._release_beats(list(self._beats))
        effects, self._members.effects = self._members.effects, []
        return effects

    def follow(self, orders: RunOrders, now: float) -> None:
        """New orders replace the earlier ones."""
        if orders != self.orders:
            self._excuse(now)
            self._members.follow(orders, now)
            self._refused &= orders.nodes.keys()
            self._release_beats([uid for uid in self._beats if not is_served(orders.nodes.get(uid))])

    def tick(self, now: float) -> None:
        """Do what is due."""
        due = self.next_deadline()
        if due is None or now < due:
            return
        self._excuse(now)
        if self._members.is_calm(now):
            self._members.scan(now)
        else:
            self._members.advance(now)

    def _excuse(self, now: float) -> None:
        """The time for which this process stood still counts against no node."""
        due = self.next_deadline()
        if due is not None and now - due > STALL:
            for session in self._members.sessions.values():
                session.touch(now + self._members.window)

    def persisted(self, now: float) -> None:
        """The state that was to be stored is stored."""
        self._store_error = ""
        self._members.stored(now)

    def persist_failed(self, message: str) -> None:
        """Storing failed for now; the host goes on trying."""
        if message != self._store_error:
            self._store_error = message
            self._effect(Changed())

    def join(self, uid: str, request: JoinRequest, waiter: Waiter, now: float) -> None:
        """The node wants to be in the next round. The waiter is answered when that is formed."""
        fact = self._caller(uid, request.incarnation)
        if self.round:
            self._refuse_newer(request.round)
        else:
            self._rounds.lift(request.round)
        session = self._members.session(fact, now)
        self._release_beats([uid])
        restored = session.incarnation is None
        replaces = session.adopt(request.incarnation)
        session.leaving = None
        session.touch(now + request.wait + self._members.window)
        self._members.reported(uid)
        if not (restored or replaces) and self._missed_its_answer(session, request):
            session.alive_until = now + self._members.window
            self._members.scan_by(session.alive_until)
            self._effect(Answer(waiter=waiter, result=self._members.formed.answer(uid)))
            return
        self._members.scan_by(session.alive_until)
        self._hold(session, waiter, now)
        if replaces or not session.joining:
            self._note_join(session, request, now)
        if self._rounds.pending is None:
            self._members.enter(session, anew=replaces, now=now)
            self._members.settle(now)

    def heartbeat(self, uid: str, request: HeartbeatRequest, now: float) -> HeartbeatAnswer:
        """A member is alive. Answers whether it has to join again."""
        if self.closed is not None:
            return self._beat(closed=self.closed)
        self._caller(uid, request.incarnation)
        if self.round:
            self._refuse_newer(request.round)
        session = self._members.sessions.get(uid)
        if session is None or not self._is_member(uid, request.round):
            self._note_stale(uid, request.round)
            return self._beat(evicted=True)
        if session.incarnation is None:
            session.adopt(request.incarnation)
        if session.incarnation != request.incarnation:
            return self._beat(evicted=True)
        self._members.reported(uid)
        session.touch(now + self._members.window)
        if request.round > session.left_round:
            session.leaving = None
        if request.endpoint is not None and self._members.formed.ranks[uid] == 0:
            self._members.publish(request.endpoint)
        return self._beat(waiting=nodes_waiting(self._rounds.state, round=self.round))

    @property
    def longest_hold(self) -> float:
        """Seconds for which a heartbeat may be held. The next one then comes well within the keep-alive time."""
        return min(MAX_WAIT_SECONDS, self.orders.keep_alive_interval, self._members.window / 2)

    def hold_beat(self, uid: str, waiter: Waiter) -> None:
        """Hold the answer to a heartbeat that was just made and tells nothing new, until something is to be told."""
        self._release_beats([uid])
        self._beats[uid] = waiter

    def leave(self, uid: str, request: LeaveRequest, now: float) -> bool:
        """A node leaves. Never closes the run; late and repeated calls do nothing.

        Returns:
            False if the call is ignored since its pod is dead or not known, or another agent has replaced the caller.
        """
        if self.closed is not None:
            return True
        session = self._members.sessions.get(uid)
        if session is None or session.incarnation not in (None, request.incarnation):
            return False
        self._release_beats([uid])
        session.adopt(request.incarnation)
        self._members.reported(uid)
        if self._has_left(session, request, now):
            return True
        waiter = session.stop_joining()
        if waiter is not None:
            self._effect(Answer(waiter=waiter, result=self._members.waiting("this node has left", now)))
        is_member = self._is_member(uid, request.round)
        if is_member and request.outcome is LeaveOutcome.SUCCEEDED:
            self._members.succeed(session, Detector.LEFT)
        else:
            stands = self._rounds.state.complete and uid in self._rounds.state.participants
            is_certain = not stands or (is_member and request.outcome is LeaveOutcome.FAILED)
            session.leaving = now if is_certain else now + LEFT_GRACE
            session.left_round = request.round
        # What follows is decided by the next tick, which is due now: nodes that leave together are looked at once.
        self._members.advance_soon(now)
        return True

    def publish(self, uid: str, round: int, request: EndpointRequest, now: float) -> None:
        """Rank 0 says where its store for the round listens."""
        self._caller(uid, request.incarnation)
        self._refuse_other(round)
        session = self._members.sessions.get(uid)
        if session is None or self._members.formed.ranks.get(uid) != 0:
            raise ProtocolError(ErrorCode.FORBIDDEN, f"only rank 0 of round {round} says where its store listens")
        if session.incarnation not in (None, request.incarnation):
            raise ProtocolError(ErrorCode.STALE_ROUND, f"another agent of pod {session.pod} is in round {round}")
        session.touch(now + self._members.window)
        self._members.publish(request.endpoint)

    def await_endpoint(self, uid: str, round: int, waiter: Waiter) -> None:
        """A member asks where the store of the round listens."""
        self._caller(uid, None)
        self._refuse_other(round)
        if uid not in self._members.formed.ranks:
            raise ProtocolError(ErrorCode.STALE_ROUND, f"this node is not in round {round}")
        if self._members.endpoint is not None:
            self._effect(Answer(waiter=waiter, result=self._members.endpoint))
        else:
            self._members.endpoint_waiters[waiter] = uid

    def poll_over(self, uid: str, waiter: Waiter, now: float) -> None:
        """The time of a held call is over: it is answered with what is known."""
        if self._members.endpoint_waiters.pop(waiter, None) is not None:
            refusal = ProtocolError(ErrorCode.NOT_READY, "rank 0 has not said yet where its store listens")
            self._effect(Answer(waiter=waiter, result=refusal))
        if self._beats.get(uid) == waiter:
            self._release_beats([uid])
        session = self._members.sessions.get(uid)
        if session is not None and session.waiter == waiter:
            self._release(session, now)

    def hung_up(self, uid: str, waiter: Waiter, now: float) -> None:
        """The caller of a held call is not there any more; nobody is to be answered."""
        self._members.endpoint_waiters.pop(waiter, None)
        if self._beats.get(uid) == waiter:
            del self._beats[uid]
        session = self._members.sessions.get(uid)
        if session is not None and session.waiter == waiter:
            session.waiter = None
            session.alive_until = now + self._members.window
            self._members.scan_by(session.alive_until)

    def _effect(self, effect: Effect) -> None:
        self._members.effects.append(effect)

    def _caller(self, uid: str, incarnation: str | None) -> NodeFacts:
        """The pod that calls.

        Raises:
            ProtocolError: The run is closed, or the pod is dead or not known.
        """
        closed = self.closed
        if closed is not None:
            raise run_is_closed(closed)
        fact = self.orders.nodes.get(uid)
        if fact is None and uid not in self._members.fenced:
            raise ProtocolError(ErrorCode.UNKNOWN_NODE, "the operator has not seen this pod yet")
        session = self._members.sessions.get(uid)
        is_retired = session is not None and incarnation in session.retired
        if fact is None or not is_served(fact) or is_retired:
            pod = self._members.fenced.pod(uid) if fact is None else fact.pod
            self._note_refusal(uid, pod, "it is dead or replaced")
            raise dead(pod)
        return fact

    def _refuse_newer(self, round: int) -> None:
        if round > self.round:
            self._effect(Verify())
            message = f"the newest round known here is {self.round}, the caller says {round}"
            raise ProtocolError(ErrorCode.NOT_READY, message)

    def _refuse_other(self, round: int) -> None:
        if self.round:
            self._refuse_newer(round)
        if round != self.round or not round or not self._rounds.state.complete:
            raise ProtocolError(ErrorCode.STALE_ROUND, f"round {round} is not the newest, which is {self.round}")

    def _is_member(self, uid: str, round: int) -> bool:
        """Whether the node is in the newest formed round, which is the one it names, and was not lost from it."""
        formed = self._rounds.formed
        if formed is None or formed.round != round or uid not in formed.ranks:
            return False
        return self._rounds.state.complete or self._rounds.knows(uid)

    def _missed_its_answer(self, session: Session, request: JoinRequest) -> bool:
        """Whether the caller is in the newest round without knowing: the answer to its earlier call was lost."""
        formed = self._rounds.formed
        if formed is None or not self._rounds.state.complete or session.joining:
            return False
        return session.uid in formed.ranks and request.round < formed.round

    def _has_left(self, session: Session, request: LeaveRequest, now: float) -> bool:
        """Whether it tells nothing new: to look at all nodes costs too much for that."""
        if session.joining:
            return False
        if session.leaving is None or session.left_round != request.round:
            return self._rounds.done.get(session.index) == session.uid
        return request.outcome is LeaveOutcome.LEFT or session.leaving <= now

    def _hold(self, session: Session, waiter: Waiter, now: float) -> None:
        if session.waiter is not None:
            earlier = self._members.waiting("a newer call of this node has come", now)
            self._effect(Answer(waiter=session.waiter, result=earlier))
        session.waiter = waiter

    def _release(self, session: Session, now: float) -> None:
        assert session.waiter is not None
        answer = self._members.waiting(self._why_waiting(session), now)
        self._effect(Answer(waiter=session.waiter, result=answer))
        session.waiter = None
        session.alive_until = now + self._members.window
        self._members.scan_by(session.alive_until)

    def _note_join(self, session: Session, request: JoinRequest, now: float) -> None:
        was_in_it = self._is_member(session.uid, request.round)
        session.joining, session.joined_at = True, now
        session.address, session.pid = request.address, request.pid
        session.failure = request.failure if was_in_it else None
        self._rounds.done = {i: uid for i, uid in self._rounds.done.items() if uid != session.uid}
        if session.failure is not None:
            message = describe_failure(session.label, session.failure)
            self._members.record_node("WorkerFailed", message, NodeState.FAILED, session)
        elif self.orders.nodes[session.uid].phase is NodePhase.ALIVE:
            # One that drains may ask, and is told to wait; it does not join.
            message = f"{session.label} joins from {session.address}"
            self._members.record_node("NodeJoined", message, NodeState.INIT, session)
        self._effect(Changed())

    def _why_waiting(self, session: Session) -> str:
        fact = self.orders.nodes.get(session.uid)
        if self._members.failed:
            return self._members.failed
        if self._store_error:
            return f"the new round cannot be stored: {self._store_error}"
        if fact is not None and fact.phase is NodePhase.DRAINING:
            return "this node drains"
        if session.index not in self.orders.expected:
            return "this node is not wanted"
        if self._rounds.group_is_finishing:
            return "the other nodes are finishing their work"
        if session.uid in self._rounds.state.spares:
            return "this node is a spare: the round is full"
        return "the round is not complete"

    def _note_stale(self, uid: str, round: int) -> None:
        if round and round < self.round:
            self._note_refusal(uid, self.orders.nodes[uid].pod, f"it names round {round}, the newest is {self.round}")

    def _note_refusal(self, uid: str, pod: str, why: str) -> None:
        """Record refused calls once a pod; the host counts them all."""
        if uid not in self._refused:
            self._refused.add(uid)
            message = f"a call of pod {pod} was refused: {why}"
            self._effect(Record(name="StaleCallRefused", message=message, node_state=NodeState.RUNNING, pod=pod))

    @property
    def _has_news(self) -> bool:
        """Whether members are to be told something: the run is closed, or the newest round is being replaced."""
        state = self._rounds.state
        return state.closed is not None or state.round > self.round

    def _release_beats(self, uids: Iterable[str]) -> None:
        """Answer heartbeats that are held open with what their callers would be told now."""
        released = [(uid, waiter) for uid in uids if (waiter := self._beats.pop(uid, None)) is not None]
        if not released:
            return
        closed = self.closed
        usual = self._beat(waiting=nodes_waiting(self._rounds.state, round=self.round), closed=closed)
        for uid, waiter in released:
            fact = self.orders.nodes.get(uid)
            if closed is None and not is_served(fact):
                pod = self._members.fenced.pod(uid) if fact is None else fact.pod
                self._effect(Answer(waiter=waiter, result=dead(pod)))
            elif closed is None and not self._rounds.knows(uid):
                self._effect(Answer(waiter=waiter, result=self._beat(evicted=True)))
            else:
                self._effect(Answer(waiter=waiter, result=usual))

    def _beat(self, *, waiting: int = 0, closed: Closed | None = None, evicted: bool = False) -> HeartbeatAnswer:
        return _beat_answer(self.round, waiting, closed, evicted, self.orders.keep_alive_interval)


@lru_cache(maxsize=1024)
def _beat_answer(
    round: int, waiting: int, closed: Closed | None, evicted: bool, interval_seconds: float
) -> HeartbeatAnswer:
    """Made once: nearly all heartbeats of a run get the same answer, again and again."""
    return HeartbeatAnswer(
        round=round, waiting=waiting, closed=closed, evicted=evicted, interval_seconds=interval_seconds
    )
