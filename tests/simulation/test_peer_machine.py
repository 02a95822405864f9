"""Peers under anything that can happen to them: no invariant breaks, and afterwards everybody is in or knows why not.

The invariants of the stored state are checked by `CheckedBackend` at every write. Hypothesis prints the steps and the
seed of a failure, and keeps it for the next run.
"""

from collections import defaultdict

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulation.virtual_run import Agent, Membership, Mode, VirtualRun

NAMES = [f"n{number}" for number in range(6)]
names = st.sampled_from(NAMES)


class PeerMachine(RuleBasedStateMachine):
    """Starts, stops, kills, pauses and cuts off agents in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.run: VirtualRun | None = None
        self.former: list[Agent] = []

    @initialize(minimum=st.integers(1, 3), more=st.integers(0, 2), seed=st.integers(0, 2**16))
    def begin(self, minimum: int, more: int, seed: int) -> None:
        note(f"seed {seed}, nodes {minimum} to {minimum + more}")
        self.run = VirtualRun(min_nodes=minimum, max_nodes=minimum + more, last_call=2, seed=seed)

    @property
    def now(self) -> VirtualRun:
        assert self.run is not None
        return self.run

    def alive(self, name: str) -> Agent | None:
        agent = self.now.agents.get(name)
        return agent if agent is not None and agent.is_alive else None

    @rule(name=names, keeps_pod_name=st.booleans())
    def start_or_restart(self, name: str, keeps_pod_name: bool) -> None:
        if name in self.now.agents:
            self.former.append(self.now.agents[name])
            self.now.kill(name)
        self.now.start(name, pod_name=name if keeps_pod_name else "")

    @rule(name=names)
    def leave(self, name: str) -> None:
        agent = self.alive(name)
        if agent is not None and not agent.link.is_cut:
            self.now.leave(name)

    @rule(name=names)
    def kill(self, name: str) -> None:
        if self.alive(name) is not None:
            self.now.kill(name)

    @rule(name=names)
    def pause_or_resume(self, name: str) -> None:
        agent = self.alive(name)
        if agent is not None:
            agent.is_paused = not agent.is_paused

    @rule(name=names)
    def cut_or_mend(self, name: str) -> None:
        agent = self.alive(name)
        if agent is not None:
            agent.link.is_cut = not agent.link.is_cut

    @rule(name=names, other=names)
    def lose_the_next_write(self, name: str, other: str) -> None:
        agent, interloper = self.alive(name), self.alive(other)
        if agent is not None and interloper is not None and agent is not interloper:
            agent.link.interloper = interloper

    @rule(name=names)
    def ask_for_a_new_round(self, name: str) -> None:
        agent = self.alive(name)
        if agent is not None:
            agent.mode = Mode.JOINING

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 10.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now.advance(seconds)

    @precondition(lambda self: self.run is not None and self.run.state.round >= 2)
    @rule(name=names)
    def close(self, name: str) -> None:
        agent = self.alive(name)
        if agent is not None and not agent.link.is_cut:
            self.now.close(name)

    @invariant()
    def the_members_of_a_round_agree(self) -> None:
        if self.run is None:
            return
        rounds: dict[int, list[Membership]] = defaultdict(list)
        for agent in [*self.former, *self.run.agents.values()]:
            told = [membership.round for membership in agent.memberships]
            assert told == sorted(set(told)), f"{agent.name} was in rounds {told}"
            for membership in agent.memberships:
                rounds[membership.round].append(membership)
        for members in rounds.values():
            ranks = [membership.rank for membership in members]
            assert len(set(ranks)) == len(ranks)
            assert {membership.world_size for membership in members} == {members[0].world_size}
            assert max(ranks) < members[0].world_size

    def teardown(self) -> None:
        """When nothing happens any more, every node that lives is admitted, is a spare, or has been told."""
        if self.run is None:
            return
        run = self.run
        for agent in run.agents.values():
            agent.is_paused = agent.link.is_cut = False
            agent.link.interloper = None
        run.advance(30)
        alive = {name for name, agent in run.agents.items() if agent.is_alive}
        if run.state.closed is not None:
            joining = {name for name in alive if run.agents[name].mode is Mode.JOINING}
            assert not joining, f"not told that the run is closed: {joining}"
        elif len(alive) >= run.rules.limits.min_nodes:
            assert run.state.complete
            assert run.members().keys() | run.spares() == alive
            assert len(run.members()) == min(len(alive), run.rules.limits.max_nodes)
        else:
            assert {run.agents[name].mode for name in alive} <= {Mode.JOINING}


TestPeers = PeerMachine.TestCase
