"""Whatever happens to a rendezvous, in whatever order, its state keeps its invariants.

Hypothesis prints the steps, and with them the reproduction, of a run that fails.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticjob.rendezvous.encoding import decode, encode
from elasticjob.rendezvous.state import (
    Limits,
    Node,
    State,
    beat,
    close,
    join,
    nodes_waiting,
    remove,
    reopen,
    resize,
    settle,
)

NAMES = st.sampled_from([f"n{i}" for i in range(7)])


class Rendezvous(RuleBasedStateMachine):
    """One state, any operations on it. The limits change too, as a resize does."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(min_nodes=2, max_nodes=4)
        self.state = State()
        self.before = self.state

    def step(self, state: State) -> None:
        self.before, self.state = self.state, state
        assert state.round >= self.before.round
        if self.before.closed is not None:
            assert state == self.before
        if self.before.complete and state.complete:
            assert list(state.participants) == list(self.before.participants)

    @rule(name=NAMES, order=st.integers(0, 3))
    def join(self, name: str, order: int) -> None:
        self.step(join(self.state, Node(key=name, address=name, order=order), self.limits))
        if self.state.closed is None:
            assert name in self.state.participants or name in self.state.spares

    @rule(names=st.frozensets(NAMES, min_size=1, max_size=4))
    def lose(self, names: frozenset[str]) -> None:
        known = self.state.nodes.keys() & names
        broke = self.state.complete and self.state.closed is None and bool(names & self.state.participants.keys())
        round_before = self.state.round
        self.step(remove(self.state, names, self.limits))
        if known and self.state.closed is None:
            assert not names & self.state.nodes.keys()
        if broke:
            assert nodes_waiting(self.state, round=round_before) > 0

    @rule(everyone_in=st.booleans(), last_call_over=st.booleans())
    def settle(self, everyone_in: bool, last_call_over: bool) -> None:
        self.step(settle(self.state, self.limits, everyone_in=everyone_in, last_call_over=last_call_over))
        if self.state.complete and not self.before.complete:
            count = len(self.state.participants)
            assert self.limits.min_nodes <= count <= self.limits.max_nodes
            assert sorted(self.state.rank(name) or 0 for name in self.state.participants) == list(range(count))

    @rule()
    def order_a_new_round(self) -> None:
        self.step(reopen(self.state, self.limits))

    @rule(name=NAMES)
    def beat(self, name: str) -> None:
        self.step(beat(self.state, name) if self.state.closed is None else self.state)

    @rule(low=st.integers(1, 3), more=st.integers(0, 3))
    def change_the_limits(self, low: int, more: int) -> None:
        self.limits = Limits(min_nodes=low, max_nodes=low + more)
        self.step(resize(self.state, self.limits))

    @precondition(lambda self: self.state.round > 3)
    @rule()
    def close(self) -> None:
        self.step(close(self.state, "Succeeded"))

    @invariant()
    def every_node_is_in_one_place(self) -> None:
        places = (self.state.participants, self.state.previous, self.state.spares)
        assert sum(map(len, places)) == len(self.state.nodes)

    @invariant()
    def a_complete_round_waits_for_nobody(self) -> None:
        assert not (self.state.complete and (self.state.previous or self.state.last_call is not None))

    @invariant()
    def the_stored_form_is_faithful(self) -> None:
        assert decode(encode(self.state), source="test") == self.state

    @invariant()
    def nobody_is_a_spare_while_there_is_a_place(self) -> None:
        if self.state.closed is None and self.state.spares:
            assert len(self.state.participants) + len(self.state.previous) >= self.limits.max_nodes


TestRendezvous = Rendezvous.TestCase
