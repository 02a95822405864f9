"""The rounds of one run: the state machine with the hosted mode's clocks around it.

`elasticjob.rendezvous.state` decides what joins and losses do to a round. This adds what needs to know the wanted nodes
and the time: when the open round is complete, how long the last call runs, when the run cannot go on. A formed round
is only `pending` until it is stored; nothing is changed in the meantime, so what is stored is what is announced.

The last call starts when enough nodes are in and no member of the last round may still be at work unaware: with a
newcomer alone it does not run, the members come as soon as they hear of it. Members that are alive but still stop their
workers get the close time-out in addition.

A group that begins anew, without any member of the last round, may be ordered to wait longer for all of its nodes:
nobody's training stands still for it. One with survivors goes on after the last call, and does not wait at all for
nodes that cannot come for now: it re-forms when they can.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType

from elasticjob.rendezvous.coordinator.incident import Incident, Opening
from elasticjob.rendezvous.orders import RunOrders
from elasticjob.rendezvous.protocol import MAX_ROUND, ErrorCode, JoinFormed, Member, ProtocolError
from elasticjob.rendezvous.state import Limits, Node, State, close, join, remove, resize, settle

MAX_FLOOR = MAX_ROUND // 2
"""Newest round that callers may know of a run whose state was lost: as many again are left for it to go on."""


@dataclass(frozen=True, kw_only=True)
class Formed:
    """A formed round, as it is announced."""

    round: int
    nodes: tuple[Node, ...]
    ranks: Mapping[str, int]
    members: tuple[Member, ...]

    def answer(self, uid: str) -> JoinFormed:
        """What a member of it is told."""
        return JoinFormed(round=self.round, rank=self.ranks[uid], members=self.members)


def formed_of(state: State) -> Formed:
    """The formed round that a complete state holds."""
    nodes = tuple(state.participants.values())
    members = (
        Member(rank=rank, index=node.order, pod=node.name, address=node.address) for rank, node in enumerate(nodes)
    )
    return Formed(
        round=state.round,
        nodes=nodes,
        ranks=MappingProxyType({node.key: rank for rank, node in enumerate(nodes)}),
        members=tuple(members),
    )


def _restored(state: State) -> State:
    """What of a stored state still holds: a formed round or none. Whoever was joining joins again."""
    if state.complete or state.closed is not None:
        return replace(state, spares=MappingProxyType({}))
    return State(round=max(1, state.round), epoch=state.epoch, failures=state.failures)


class Rounds:
    """State, newest formed round and clocks of one run. Seconds are monotonic."""

    def __init__(self, orders: RunOrders, state: State, *, now: float) -> None:
        self.orders = orders
        self.state = _restored(state)
        self.pending: State | None = None
        self.formed: Formed | None = formed_of(state) if state.complete else None
        self.done: dict[int, str] = {}
        """Members of the run that have succeeded: pod UID by node index. They are not needed any more."""
        self.incident: Incident | None = None
        self.cause = "restored after a change of the operator" if state.complete else ""
        self.opening: Opening | None = None
        self.seconds: float | None = None
        if not state.complete:
            self.incident = Incident(opening=Opening.FIRST, opened_at=now, cause="the run began")
        self._call: tuple[int, float] | None = None
        self._short_since: float | None = None
        self._limits = Limits(min_nodes=1, max_nodes=1)

    @property
    def limits(self) -> Limits:
        """How many nodes the open round needs and may have. One that stands has places for whole steps only."""
        needed = max(1, self.orders.min_nodes - len(self.done))
        most, state, step = self.orders.max_nodes, self.state, self.orders.step
        if step > 1 and state.complete:
            most = min(most, len(state.participants) + len(state.spares) // step * step)
        known = self._limits
        if known.max_nodes != most or known.min_nodes != min(needed, most):
            known = self._limits = Limits(min_nodes=min(needed, most), max_nodes=most)
        return known

    @property
    def wanted(self) -> AbstractSet[int]:
        """Indexes of the nodes that should be in the next round."""
        return self.orders.expected - self.done.keys() if self.done else self.orders.expected

    @property
    def newest(self) -> int:
        """Number of the newest formed round, 0 before the first."""
        return 0 if self.formed is None else self.formed.round

    @property
    def in_last_call(self) -> bool:
        return self._call is not None

    @property
    def begins_anew(self) -> bool:
        """Whether no node in the open round was in the last one."""
        if self.state.complete:
            return False
        return self.formed is None or self.formed.ranks.keys().isdisjoint(self.state.nodes)

    @property
    def group_is_finishing(self) -> bool:
        """Whether a member of the standing round has succeeded: nobody may disturb the others any more."""
        return self.state.complete and bool(self.done)

    def knows(self, uid: str) -> bool:
        """Whether the node is in the round, has a place in it, or is a spare."""
        state = self.state
        return uid in state.participants or uid in state.previous or uid in state.spares

    def fit(self) -> bool:
        """Apply limits that have changed. True if that opened the next round: a spare has a place now."""
        if self.group_is_finishing:
            return False
        stood = self.state.complete
        self.state = resize(self.state, self.limits)
        return stood and not self.state.complete

    def lift(self, floor: int) -> None:
        """Callers of a run whose state was lost know rounds already: go on after the newest of them.

        Raises:
            ProtocolError: `invalid`, if hardly any round could follow; one caller must not be able to use them up.
        """
        if self.formed is not None or self.pending is not None or self.state.round > floor:
            return
        if floor > MAX_FLOOR:
            message = f"round is {floor}, but a run that has formed none yet goes on after {MAX_FLOOR} at most"
            raise ProtocolError(ErrorCode.INVALID, message)
        self.state = replace(self.state, round=floor + 1)

    def enter(self, node: Node, *, anew: bool) -> bool:
        """A node joins. True if that opened the next round.

        Args:
            anew: Another incarnation of a node that is in the open round already.
        """
        stood = self.state.complete
        if anew and not stood:
            self.state = remove(self.state, {node.key}, self.limits)
        self.state = join(self.state, node, self.limits)
        if self.state.complete and self.orders.step > 1:
            self.state = resize(self.state, self.limits)  # it may have made the step whole
        return stood and not self.state.complete

    def lose(self, uids: Collection[str]) -> bool:
        """Nodes are gone. True if that opened the next round."""
        stood = self.state.complete
        self.state = remove(self.state, uids, self.limits)
        return stood and not self.state.complete

    def open(self, incident: Incident) -> None:
        """The standing round is being replaced. Members that have succeeded are not waited for."""
        self.incident = incident
        self.state = remove(self.state, set(self.done.values()), self.limits)

    def settle(self, *, failures: int, epoch: int, now: float) -> State | None:
        """Complete the open round if it is due. Returns the state that is to be stored for it."""
        self._run_clocks(now)
        deadline = self.last_call_deadline
        over = deadline is not None and now >= deadline
        settled = self._settled(everyone_in=over or self._everyone_is_in())
        if settled is self.state or not settled.complete:
            return None
        return replace(settled, failures=failures, epoch=epoch)

    def _settled(self, *, everyone_in: bool) -> State:
        """The open round, complete if it is due: in whole steps, unless members of it have succeeded already."""
        limits, state, step = self.limits, self.state, self.orders.step
        beyond = len(state.participants) % step
        if not beyond or not everyone_in or self.done or state.complete:
            return settle(state, limits, everyone_in=everyone_in)
        size = len(state.participants) - beyond
        if size < limits.min_nodes:
            return state
        # Members of the last round that are not back lose their places, as in every round that forms without them.
        whole = replace(limits, max_nodes=size)
        fitting = resize(remove(state, state.previous.keys(), limits), whole)
        return settle(fitting, whole, everyone_in=True)

    def closing(self, reason: str, *, failures: int, epoch: int) -> State:
        """The state that is to be stored to close the run."""
        return replace(close(self.state, reason), failures=failures, epoch=epoch)

    def stored(self, *, now: float) -> None:
        """The pending state is durable."""
        assert self.pending is not None
        self.state, self.pending = self.pending, None
        self._call, self._short_since = None, None
        if self.state.closed is not None or not self.state.complete:
            return
        self.formed = formed_of(self.state)
        if self.incident is not None:
            self.cause, self.seconds = self.incident.cause, now - self.incident.opened_at
            self.opening = self.incident.opening
        self.incident = None

    @property
    def last_call_deadline(self) -> float | None:
        """When the open round completes without the missing nodes."""
        if self._call is None:
            return None
        stragglers = self.orders.close_timeout if self.state.previous else 0.0
        patience = self.orders.wait_for_all if self.begins_anew else 0.0
        return self._call[1] + max(self.orders.last_call_timeout + stragglers, patience)

    @property
    def join_deadline(self) -> float | None:
        """When the run fails since too few nodes have joined."""
        return None if self._short_since is None else self._short_since + self.orders.join_timeout

    def _everyone_is_in(self) -> bool:
        inside = self.state.participants
        if self.formed is not None and self._came_back_alone(inside):
            return True
        not_waited_for, wanted = self._not_waited_for, self.wanted
        if not_waited_for:  # nearly always empty, and the wanted nodes may be thousands
            wanted = wanted - not_waited_for
        if not wanted or len(inside) < len(wanted):
            return False
        return wanted <= {node.order for node in inside.values()}

    @property
    def _not_waited_for(self) -> AbstractSet[int]:
        """Nodes that survivors go on without; never a member that has yet to stop its workers."""
        if self.begins_anew:
            return frozenset()
        return self.orders.unable - {node.order for node in self.state.previous.values()}

    def _came_back_alone(self, inside: Mapping[str, Node]) -> bool:
        """All members of the last round are back and nobody else: they need not wait for nodes that they lacked."""
        if self.incident is None or self.incident.opening not in (Opening.FAILURE, Opening.REJOIN):
            return False
        if self.formed is None or self.state.previous or len(inside) > len(self.formed.nodes):
            return False
        return inside.keys() == self.formed.ranks.keys() - set(self.done.values())

    def _run_clocks(self, now: float) -> None:
        state = self.state
        unaware = bool(state.previous) and not (self.incident is not None and self.incident.breaks_the_group)
        if state.complete or state.last_call is None or (unaware and not state.rejoined):
            self._call = None
        elif self._call is None or self._call[0] != state.last_call:
            self._call = (state.last_call, now)
        if not self._is_short():
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now

    def _is_short(self) -> bool:
        state, least = self.state, self.limits.min_nodes
        if state.complete or not 0 < len(state.participants) < least:
            return False
        broken = self.incident is not None and self.incident.breaks_the_group
        return broken or len(state.participants) + len(state.previous) < least
