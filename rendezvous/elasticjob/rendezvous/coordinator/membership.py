"""Who is in the next round: applies orders, losses and joins to the rounds of one run, and says what follows.

Level-triggered: `advance` compares everything that is known with the round as it is, in one go, so that a burst of
losses is one incident and a lost message does no harm. While a formed round is being stored nothing is applied; what
came in meanwhile is seen by the `advance` that follows.
"""

from collections.abc import Iterable

from elasticjob.events.api import NodeState
from elasticjob.rendezvous.coordinator import announcements
from elasticjob.rendezvous.coordinator.effects import Answer, Changed, Effect, Persist, Waiter
from elasticjob.rendezvous.coordinator.incident import Incident, Opening, describe_failure
from elasticjob.rendezvous.coordinator.rounds import Formed, Rounds
from elasticjob.rendezvous.coordinator.sessions import Fenced, Session, dead, session_of
from elasticjob.rendezvous.coordinator.verdict import Detector, Loss, judge
from elasticjob.rendezvous.orders import NodeFacts, NodePhase, RunOrders
from elasticjob.rendezvous.protocol import Closed, Endpoint, JoinWaiting, ProtocolError, shorten
from elasticjob.rendezvous.state import State
from elasticjob.rendezvous.wording import counted

SOON = 0.05
"""Seconds that pass at least between two looks at all nodes that calls of one node can provoke."""


class Membership:
    """Orders, sessions and rounds of one run. Times are monotonic seconds."""

    def __init__(self, orders: RunOrders, state: State, *, now: float) -> None:
        self.orders = orders
        self.epoch = state.epoch
        self.failures = state.failures
        self.failed = ""
        """Why the run cannot go on; the operator decides what follows."""
        self.rounds = Rounds(orders, state, now=now)
        self.sessions: dict[str, Session] = {}
        self.fenced = Fenced()
        self.effects: list[Effect] = []
        self.endpoint: Endpoint | None = None
        self.endpoint_waiters: dict[Waiter, str] = {}
        self.held_until = now + self.window
        self.unreported: set[str] = set()
        """Members of a restored round that have not called yet."""
        self.silent: frozenset[str] = frozenset()
        """UIDs of pods that have missed a keep-alive and are not lost yet."""
        self.scan_at: float | None = None
        self._advance_at: float | None = None
        self._soon_from = now
        self._announced: dict[str, str | None] = {}
        self._restore(now)
        self.advance(now)

    @property
    def window(self) -> float:
        """Seconds without a call after which a node counts as lost."""
        return self.orders.keep_alive_interval * self.orders.keep_alive_max_attempt

    @property
    def formed(self) -> Formed:
        """The newest formed round, which must exist."""
        assert self.rounds.formed is not None
        return self.rounds.formed

    @property
    def closed(self) -> Closed | None:
        """Set once the end of the run is stored."""
        reason = self.rounds.state.closed
        if reason is None:
            return None
        return Closed(reason=reason, message=shorten(self.orders.close_message or self.failed))

    @property
    def last_call_deadline(self) -> float | None:
        """When the open round completes without the missing nodes; None once the run has failed."""
        return None if self.failed else self.rounds.last_call_deadline

    @property
    def join_deadline(self) -> float | None:
        """When the run fails for lack of nodes; None once it has failed."""
        return None if self.failed else self.rounds.join_deadline

    @property
    def deadlines(self) -> tuple[float | None, ...]:
        """When `advance` is due, whatever the sessions do."""
        held_until = self.held_until if self.unreported else None
        return self._advance_at, self.last_call_deadline, self.join_deadline, held_until

    def follow(self, orders: RunOrders, now: float) -> None:
        """New orders replace the earlier ones."""
        before, self.orders = self.orders, orders
        self.rounds.orders = orders
        for uid, fact in before.nodes.items():
            if uid not in orders.nodes:
                self.bury(uid, fact.pod)
        self.effects.append(Changed())
        self.advance(now)

    def advance(self, now: float) -> None:
        """Bring the round in line with everything that is known."""
        if self._advance_at is not None:
            self._advance_at, self._soon_from = None, now + SOON
        self.scan(now)
        if now >= self.held_until:
            self.unreported.clear()
        if self.rounds.pending is not None or self.rounds.state.closed is not None:
            return
        if self.orders.close is not None:
            reason = self.orders.close.value
            self._persist(self.rounds.closing(reason, failures=self.failures, epoch=self.epoch))
            return
        self._note_outcomes()
        self._lose(self._losses(now), now)
        if self.rounds.fit():
            self._open(Opening.NEWCOMER, "a place is free for a node that waits", now)
        self._admit(now)
        self.settle(now)

    def session(self, fact: NodeFacts, now: float) -> Session:
        """The session of a pod that calls."""
        session = self.sessions.get(fact.pod_uid)
        if session is None:
            session = self.sessions[fact.pod_uid] = session_of(fact, alive_until=now + self.window)
        return session

    def enter(self, session: Session, *, anew: bool, now: float) -> None:
        """Let one node into the open round, or open it for it, if it has a place."""
        if not self.may_enter(session):
            return
        was_member = self.rounds.state.complete and session.uid in self.rounds.state.participants
        if not self.rounds.enter(session.node, anew=anew):
            return
        if not was_member:
            self._open(Opening.NEWCOMER, f"{session.label} joined", now)
        elif session.failure is not None:
            self._open(Opening.FAILURE, describe_failure(session.label, session.failure), now)
        elif anew:
            self._open(Opening.LOSS, f"the agent of {session.label} was started anew", now)
        else:
            self._open(Opening.REJOIN, f"{session.label} asked for a new round", now)
        self._admit(now)

    def may_enter(self, session: Session) -> bool:
        """Whether the node is to be in the next round."""
        fact = self.orders.nodes.get(session.uid)
        if not session.joining or fact is None or fact.phase is not NodePhase.ALIVE:
            return False
        if fact.index not in self.orders.expected:
            return False
        return not (self.rounds.group_is_finishing and session.uid not in self.rounds.state.participants)

    def settle(self, now: float) -> None:
        """Form the open round if it is due; fail the run if it cannot form in time."""
        if self.rounds.pending is not None or self.rounds.state.complete or self.failed:
            return
        incident = self.rounds.incident
        charge = 1 if incident is not None and incident.charged else 0
        called = self.rounds.in_last_call
        state = self.rounds.settle(failures=self.failures + charge, epoch=self.epoch, now=now)
        limit = self.orders.max_worker_failures
        if state is not None and limit is not None and charge and state.failures > limit:
            self.failures = state.failures
            self._fail(f"{incident.failure if incident else ''}; workers may fail {counted(limit, 'time')}")
        elif state is not None:
            self.failures = state.failures
            self._announced = {uid: self.sessions[uid].incarnation for uid in state.participants}
            self._persist(state)
        elif self.join_deadline is not None and now >= self.join_deadline:
            self._time_out()
        elif self.rounds.in_last_call and not called:
            self.effects += (announcements.last_call(self.rounds), Changed())

    def stored(self, now: float) -> None:
        """The pending state is durable: tell everybody whom it concerns."""
        self.rounds.stored(now=now)
        self.effects.append(Changed())
        if self.rounds.state.closed is not None:
            self._tell_closed()
            return
        self._tell_formed(now)
        self.advance(now)

    def succeed(self, session: Session, detector: Detector) -> None:
        """A member has done its work: not needed any more, not lost either."""
        if self.rounds.done.get(session.index) == session.uid:
            return
        self.rounds.done[session.index] = session.uid
        self.reported(session.uid)
        if not self.rounds.state.complete:
            self.rounds.lose({session.uid})
        self.effects += (announcements.node_succeeded(session, detector), Changed())

    def bury(self, uid: str, pod: str) -> None:
        """The pod is gone for good."""
        self.fenced.add(uid, pod)
        session = self.sessions.get(uid)
        waiter = session.stop_joining() if session is not None else None
        if waiter is not None:
            self.effects.append(Answer(waiter=waiter, result=dead(pod)))

    def publish(self, endpoint: Endpoint) -> None:
        """Rank 0 has said where its store listens."""
        if endpoint == self.endpoint or not self.rounds.state.complete:
            return
        self.endpoint = endpoint
        self._answer_endpoint_waiters(endpoint)

    def reported(self, uid: str) -> None:
        """A member of a restored round has called."""
        if uid in self.unreported:
            self.unreported.discard(uid)
            if not self.unreported:
                self.effects.append(Changed())

    def scan_by(self, deadline: float) -> None:
        """Look at all sessions at the deadline or before."""
        self.scan_at = deadline if self.scan_at is None else min(self.scan_at, deadline)

    def advance_soon(self, now: float) -> None:
        """Something has happened that the next tick has to see: it is due now, or a moment after the last such one."""
        self._advance_at = max(now, self._soon_from)

    def is_calm(self, now: float) -> bool:
        """Whether nothing has happened and all nodes have called in time, so that `scan` is all that is to be done."""
        is_due = any(deadline is not None and deadline <= now for deadline in self.deadlines)
        return not is_due and all(now < session.lost_at for session in self.sessions.values())

    def waiting(self, message: str, now: float) -> JoinWaiting:
        """The answer to a join that has to go on waiting."""
        deadlines = (self.last_call_deadline, self.join_deadline)
        soonest = min((deadline for deadline in deadlines if deadline is not None), default=None)
        return JoinWaiting(
            joined=0 if self.rounds.state.complete else len(self.rounds.state.participants),
            expected=min(len(self.rounds.wanted), self.orders.max_nodes),
            min_nodes=self.rounds.limits.min_nodes,
            deadline_seconds=None if soonest is None else max(0.0, soonest - now),
            message=shorten(message),
        )

    def record_node(self, name: str, message: str, node_state: NodeState, session: Session) -> None:
        """Record one fact about a node."""
        self.effects.append(announcements.node_record(name, message, node_state, session))

    def _restore(self, now: float) -> None:
        """Members of the stored round keep their places until they report or are found to be gone."""
        state = self.rounds.state
        if not state.complete:
            return
        for node in state.participants.values():
            self.sessions[node.key] = Session(
                uid=node.key,
                index=node.order,
                pod=node.name,
                address=node.address,
                pid=node.pid,
                alive_until=self.held_until,
            )
            if node.key not in self.orders.nodes:
                self.fenced.add(node.key, node.name)
        self.unreported = set(state.participants)

    def scan(self, now: float) -> None:
        """Drop sessions of pods that are gone, and look again when the first of the others may fall silent."""
        known = self.rounds.state.nodes.keys() | self.orders.nodes.keys()
        if self.rounds.pending is not None:
            known |= self.rounds.pending.participants.keys()
        for uid in [uid for uid in self.sessions if uid not in known]:
            del self.sessions[uid]
        silent = frozenset(uid for uid, session in self.sessions.items() if self._silent_from(session) <= now)
        if silent != self.silent:
            self.silent = silent
            self.effects.append(Changed())
        moments = [(session.lost_at, self._silent_from(session)) for session in self.sessions.values()]
        self.scan_at = min((moment for both in moments for moment in both if moment > now), default=None)

    def _silent_from(self, session: Session) -> float:
        """When it will have missed a keep-alive, if it does not call before."""
        return session.alive_until - self.window + 2 * self.orders.keep_alive_interval

    def _note_outcomes(self) -> None:
        """What pods say about members overrules what the agents said."""
        if self.rounds.formed is None:
            return
        self._forget_replaced()
        for node in self.rounds.formed.nodes:
            fact = self.orders.nodes.get(node.key)
            if fact is None:
                continue
            if fact.phase is NodePhase.SUCCEEDED and node.key in self.sessions:
                self.succeed(self.sessions[node.key], Detector.POD_WATCH)
            elif fact.phase is NodePhase.FAILED and self.rounds.done.get(node.order) == node.key:
                del self.rounds.done[node.order]

    def _forget_replaced(self) -> None:
        """A new pod in the place of one that has succeeded: the operator wants that work done again."""
        done = self.rounds.done
        for fact in self.orders.nodes.values() if done else ():
            is_wanted = fact.phase is NodePhase.ALIVE and fact.index in self.orders.expected
            if is_wanted and done.get(fact.index, fact.pod_uid) != fact.pod_uid:
                del done[fact.index]

    def _losses(self, now: float) -> dict[str, Loss]:
        done = set(self.rounds.done.values())
        losses: dict[str, Loss] = {}
        inside = self.rounds.state.nodes
        for uid in (*inside, *(uid for uid, session in self.sessions.items() if session.joining and uid not in inside)):
            session = self.sessions.get(uid)
            loss = judge(self.orders.nodes.get(uid), session, expected=self.orders.expected, now=now)
            if loss is not None and uid not in done:
                losses[uid] = loss
        return losses

    def _lose(self, losses: dict[str, Loss], now: float) -> None:
        state = self.rounds.state
        inside = {uid: loss for uid, loss in losses.items() if uid in state.nodes}
        members = [uid for uid in inside if self.rounds.formed is not None and uid in self.rounds.formed.ranks]
        opened = self.rounds.lose(inside.keys())
        for uid, loss in losses.items():
            self._say_lost(uid, loss, uid in inside, now)
        if opened:
            self._open(Opening.LOSS, announcements.cause_of_loss(members, inside, self.sessions), now)
        elif members and self.rounds.incident is not None:
            self.rounds.incident.lost = True
        if inside:
            self.effects.append(Changed())

    def _say_lost(self, uid: str, loss: Loss, was_inside: bool, now: float) -> None:
        session = self.sessions.get(uid)
        if session is None:
            return
        if loss.final:
            waiter = session.stop_joining()
            if waiter is not None:
                self.effects.append(Answer(waiter=waiter, result=dead(session.pod)))
        elif loss.detector in (Detector.KEEP_ALIVE, Detector.LEFT):
            waiter = session.stop_joining()
            if waiter is not None:
                answer = self.waiting("this node was given up, since it did not call in time", now)
                self.effects.append(Answer(waiter=waiter, result=answer))
        self.unreported.discard(uid)
        if was_inside:
            silence = max(0.0, now - session.alive_until + self.window)
            self.effects.append(announcements.node_lost(session, loss, silence=silence))

    def _open(self, opening: Opening, cause: str, now: float) -> None:
        incident = Incident(opening=opening, opened_at=now, cause=cause, lost=opening is Opening.LOSS)
        if opening is Opening.FAILURE:
            incident.failure = cause
        self.rounds.open(incident)
        self.endpoint = None
        self._answer_endpoint_waiters(announcements.round_is_replaced(self.rounds.newest, cause))
        self.effects += (announcements.round_reforming(self.rounds.newest, cause), Changed())

    def _admit(self, now: float) -> None:
        """Let in whoever waits and has a place, in order of arrival."""
        state = self.rounds.state
        inside = {**state.participants, **state.spares} if not state.complete else state.spares
        outside = [s for uid, s in self.sessions.items() if s.joining and uid not in inside and self.may_enter(s)]
        for session in sorted(outside, key=lambda one: one.joined_at):
            if self.rounds.state.complete:
                self.enter(session, anew=session.uid in self.rounds.state.participants, now=now)
            else:
                self.rounds.enter(session.node, anew=False)

    def _persist(self, state: State) -> None:
        self.rounds.pending = state
        self.effects.append(Persist(state=state))

    def _fail(self, why: str) -> None:
        self.failed = shorten(why)
        self.effects.append(Changed())

    def _time_out(self) -> None:
        timeout = self.orders.join_timeout
        self._fail(f"too few nodes joined within {timeout:g} s: {announcements.progress(self.rounds)}")
        self.effects.append(announcements.join_timed_out(self.failed))

    def _tell_formed(self, now: float) -> None:
        formed = self.formed
        self.endpoint, self.unreported = None, set()
        for uid, incarnation in self._announced.items():
            session = self.sessions.get(uid)
            if session is None or session.incarnation != incarnation or not session.joining:
                continue
            waiter = session.stop_joining()
            session.alive_until = now + self.window
            if waiter is not None:
                self.effects.append(Answer(waiter=waiter, result=formed.answer(uid)))
            self.effects.append(announcements.node_ranked(session, formed))
        self.effects.append(announcements.round_formed(formed, self.rounds.cause))

    def _tell_closed(self) -> None:
        closed = self.closed
        assert closed is not None
        refusal = announcements.run_is_closed(closed)
        self._answer_endpoint_waiters(refusal)
        for session in self.sessions.values():
            waiter = session.stop_joining()
            if waiter is not None:
                self.effects.append(Answer(waiter=waiter, result=refusal))
        self.effects.append(announcements.run_closed(closed))

    def _answer_endpoint_waiters(self, result: Endpoint | ProtocolError) -> None:
        waiters: Iterable[Waiter] = list(self.endpoint_waiters)
        self.endpoint_waiters.clear()
        self.effects.extend(Answer(waiter=waiter, result=result) for waiter in waiters)
