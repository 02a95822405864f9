"""The state machine of a rendezvous: pure functions from a state to the next one.

A rendezvous is a sequence of numbered *rounds*. A round is first *open*: nodes join it. It becomes *complete* when
enough of them are in; then each participant has a rank, and training runs. Two things end a complete round, and both
open the next one at once: a participant is gone, or somebody joins who has a place. So a participant finds out that it
must re-join by one comparison: the round of the state is newer than its own (`nodes_waiting`).

When a round opens, the participants of the last one that are still alive are its *previous* members. They keep their
places until they re-join or are gone; *spares* (nodes beyond the maximum) wait without disturbing anybody and move up
as soon as a place is free.

The peer-to-peer mode stores this state in a backend and lets every node apply these functions by compare-and-set; the
hosted coordinator keeps it in memory and stores it when a round is complete. Neither clocks nor I/O occur here. What
needs time is decided from `Observation`, which stamps *changes* of the state with the observer's own monotonic clock,
so that the clocks of two machines are never compared.

Invariants: rounds never fall; the ranks of a complete round are 0..n-1, once each; min <= n <= max in a complete
round; a closed rendezvous never opens again; a node is in at most one of participants, previous and spares.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


def _frozen(nodes: Mapping[str, "Node"]) -> Mapping[str, "Node"]:
    return MappingProxyType(dict(nodes))


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node.

    Args:
        key: Identity. The pod's UID in hosted mode; unique for each agent process in peer mode.
        order: Ranks follow this first: the stable node index in hosted mode, 0 in peer mode.
        address: Where its peers reach it.
        name: For people, e.g. the pod's name.
    """

    key: str
    address: str
    order: int = 0
    pid: int = 0
    local_id: int = 0
    name: str = ""

    @property
    def sort_key(self) -> tuple[int, str, int, int, str]:
        """What ranks are ordered by."""
        return (self.order, self.address, self.pid, self.local_id, self.key)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many nodes a round may have."""

    min_nodes: int
    max_nodes: int


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that is known of a rendezvous.

    Args:
        round: Number of the round that is open or complete.
        complete: Whether that round is complete.
        closed: Why the rendezvous is closed; None while it is not.
        participants: Nodes in the round, by key. Once it is complete, their order is that of their ranks.
        previous: Members of the last complete round that are alive and have not re-joined. Empty once complete.
        rejoined: Whether any member of the last complete round has re-joined the open one.
        spares: Nodes for which there is no place, in order of arrival.
        last_call: Marker of the running last call; None when there is none to wait for. A new call has a new
            marker, so that observers start their clocks anew.
        last_calls: How many last calls there have been: where the next marker comes from.
        beats: Heartbeat counter of each node (peer mode).
        epoch: Fencing epoch of the writer (hosted mode).
        failures: Worker failures that have been counted (hosted mode).
    """

    round: int = 0
    complete: bool = False
    closed: str | None = None
    participants: Mapping[str, Node] = field(default_factory=lambda: _frozen({}))
    previous: Mapping[str, Node] = field(default_factory=lambda: _frozen({}))
    rejoined: bool = False
    spares: Mapping[str, Node] = field(default_factory=lambda: _frozen({}))
    last_call: int | None = None
    last_calls: int = 0
    beats: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    epoch: int = 0
    failures: int = 0

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Every node that is known, by key."""
        return {**self.participants, **self.previous, **self.spares}

    def rank(self, key: str) -> int | None:
        """Rank of a participant of the complete round, else None."""
        if not self.complete or key not in self.participants:
            return None
        return list(self.participants).index(key)


def join(state: State, node: Node, limits: Limits) -> State:
    """The node wants to be in the next round; a participant of the complete round thereby re-enters.

    Joining again is harmless. A node for which there is no place becomes a spare.
    """
    if state.closed is not None or (not state.complete and node.key in state.participants):
        return state
    if not state.complete:
        return _enter(state, node, limits)
    if node.key in state.participants or _has_place(state, node, limits):
        return _enter(_open_next(state, limits), node, limits)
    return _enter(state, node, limits)


def remove(state: State, keys: Iterable[str], limits: Limits) -> State:
    """These nodes are gone: they left, their pods ended or they fell silent. All of them are one incident."""
    gone = frozenset(keys) & state.nodes.keys()
    if not gone or state.closed is not None:
        return state
    broken = state.complete and not gone.isdisjoint(state.participants)
    kept = replace(
        state,
        participants=_without(state.participants, gone),
        previous=_without(state.previous, gone),
        spares=_without(state.spares, gone),
        beats=_beats_without(state, gone),
    )
    if broken:
        return _open_next(kept, limits)
    return kept if kept.complete else _recall(_promote_spares(kept, limits), limits)


def reopen(state: State, limits: Limits) -> State:
    """Order the next round although nobody is gone and nobody waits (resize, drain)."""
    if state.closed is not None or not state.complete:
        return state
    return _open_next(state, limits)


def resize(state: State, limits: Limits) -> State:
    """The limits have changed: spares take places that are new, and who is beyond the maximum becomes a spare.

    A complete round is opened only for spares that now have a place; to shrink one is an order (`reopen`, `remove`).
    """
    if state.closed is not None:
        return state
    if state.complete:
        return _open_next(state, limits) if state.spares and len(state.participants) < limits.max_nodes else state
    room = max(0, limits.max_nodes - len(state.previous))
    ranked = sorted(state.participants.values(), key=lambda node: node.sort_key)
    beyond = {node.key: node for node in ranked[room:]}
    if not beyond:
        return _recall(_promote_spares(state, limits), limits)
    kept = _without(state.participants, beyond.keys())
    return _recall(replace(state, participants=kept, spares=_frozen({**beyond, **state.spares})), limits)


def settle(state: State, limits: Limits, *, everyone_in: bool = False, last_call_over: bool = False) -> State:
    """Complete the open round if it is due.

    Args:
        everyone_in: Nobody else is wanted (hosted mode): complete without a last call.
        last_call_over: The last call has lasted its time for this observer.
    """
    if state.closed is not None or state.complete:
        return state
    count = len(state.participants)
    if not limits.min_nodes <= count <= limits.max_nodes:
        return state
    call_is_over = last_call_over and state.last_call is not None
    if not (everyone_in or count == limits.max_nodes or call_is_over):
        return state
    # Members that have not come back lose their places, which spares are there to take.
    kept = replace(state, previous=_frozen({}), rejoined=False, beats=_beats_without(state, state.previous.keys()))
    full = _promote_spares(kept, limits)
    ranked = sorted(full.participants.values(), key=lambda node: node.sort_key)
    participants = _frozen({node.key: node for node in ranked})
    return replace(full, complete=True, participants=participants, last_call=None)


def close(state: State, reason: str) -> State:
    """End the rendezvous for good. The first reason stands."""
    return state if state.closed is not None else replace(state, closed=reason, last_call=None)


def beat(state: State, key: str) -> State:
    """Count one heartbeat of the node (peer mode). A node that is not known any more stays unknown."""
    if key not in state.nodes:
        return state
    return replace(state, beats=MappingProxyType({**state.beats, key: state.beats.get(key, 0) + 1}))


def nodes_waiting(state: State, *, round: int) -> int:
    """What a member of `round` answers to `num_nodes_waiting()`: positive exactly when it must re-join.

    Counts the nodes that have joined a newer round, and is 1 if that round has none yet because it was opened by
    a loss. Spares do not count: nobody has to stop for a node that has no place.
    """
    if state.closed is not None or state.round <= round:
        return 0
    return max(1, len(state.participants))


def _open_next(state: State, limits: Limits) -> State:
    opened = replace(
        state,
        round=state.round + 1,
        complete=False,
        previous=state.participants,
        participants=_frozen({}),
        rejoined=False,
        last_call=None,
    )
    return _recall(_promote_spares(opened, limits), limits)


def _enter(state: State, node: Node, limits: Limits) -> State:
    spares = _without(state.spares, {node.key})
    if state.complete or not _has_place(state, node, limits):
        if node.key in state.spares:
            return state
        return replace(state, spares=_with(state.spares, node))
    entered = replace(
        state,
        participants=_with(state.participants, node),
        previous=_without(state.previous, {node.key}),
        rejoined=state.rejoined or node.key in state.previous,
        spares=spares,
    )
    return _recall(entered, limits)


def _has_place(state: State, node: Node, limits: Limits) -> bool:
    inside, outstanding = state.participants, state.previous
    if node.key in inside or node.key in outstanding or len(inside) + len(outstanding) < limits.max_nodes:
        return True
    return len(inside.keys() | outstanding.keys()) < limits.max_nodes


def _promote_spares(state: State, limits: Limits) -> State:
    free = max(0, limits.max_nodes - len(state.participants) - len(state.previous))
    promoted = dict(list(state.spares.items())[:free])
    if not promoted:
        return state
    return replace(
        state,
        participants=_frozen({**state.participants, **promoted}),
        spares=_without(state.spares, promoted.keys()),
    )


def _recall(state: State, limits: Limits) -> State:
    """Start the last call when the minimum is reached, take it back when it is lost.

    Members of the last round may still be training as long as none of them has come back, so newcomers start none.
    """
    enough = len(state.participants) >= limits.min_nodes and (state.rejoined or not state.previous)
    if enough and state.last_call is None:
        return replace(state, last_call=state.last_calls + 1, last_calls=state.last_calls + 1)
    if not enough and state.last_call is not None:
        return replace(state, last_call=None)
    return state


def _with(nodes: Mapping[str, Node], node: Node) -> Mapping[str, Node]:
    # A view copies what it shows in one go; to unpack it would look up every node, for each one that joins.
    grown = nodes.copy() if isinstance(nodes, MappingProxyType) else dict(nodes)
    grown[node.key] = node
    return MappingProxyType(grown)


def _without(nodes: Mapping[str, Node], keys: Iterable[str]) -> Mapping[str, Node]:
    gone = frozenset(keys)
    if gone.isdisjoint(nodes):
        return nodes
    return _frozen({key: node for key, node in nodes.items() if key not in gone})


def _beats_without(state: State, keys: Iterable[str]) -> Mapping[str, int]:
    gone = frozenset(keys)
    return MappingProxyType({key: count for key, count in state.beats.items() if key not in gone})
