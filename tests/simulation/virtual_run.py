"""A peer-to-peer rendezvous of many nodes in one thread and in virtual time.

Each agent does what `DynamicRendezvousHandler` and an elastic agent do together: it joins, trains, beats, asks whether
it must re-join. Nothing sleeps and nothing runs in parallel; lost races are made by letting another agent step between
the read and the write of one. The stored state is checked against the invariants of a rendezvous at every write.
"""

import contextlib
import random
from dataclasses import dataclass, field
from enum import Enum

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends.memory import MemoryRendezvousBackend, MemorySpace
from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.peer import Intent, Peer, Rules
from elasticjob.rendezvous.state import Limits, Node, State, nodes_waiting

TICK = 0.25


class CheckedBackend(RendezvousBackend):
    """Keeps the state in memory and refuses to let an invariant be broken."""

    def __init__(self, limits: Limits) -> None:
        self._inner = MemoryRendezvousBackend(MemorySpace("run"))
        self._limits = limits
        self._current: Token | None = None
        self.writes = 0

    @property
    def name(self) -> str:
        return "checked"

    @property
    def state(self) -> State:
        stored = self._inner.get_state()
        return State() if stored is None else decode(stored[0], source="the test")

    def get_state(self) -> tuple[bytes, Token] | None:
        return self._inner.get_state()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        before = self.state
        answer = self._inner.set_state(state, token)
        if answer is not None and answer[2]:
            assert token == self._current, "a write with an old token succeeded"
            self._current = answer[1]
            self.writes += 1
            self._check(before, self.state)
        return answer

    def _check(self, before: State, after: State) -> None:
        assert after.round >= before.round, "the round fell"
        assert before.closed is None or after.closed == before.closed, "a closed rendezvous opened again"
        if after.complete:
            assert self._limits.min_nodes <= len(after.participants) <= self._limits.max_nodes
            assert sorted(after.rank(key) or 0 for key in after.participants) == list(range(len(after.participants)))
        if before.complete and after.round == before.round:
            assert list(after.participants) == list(before.participants), "a complete round was changed"


class Mode(Enum):
    """What an agent does."""

    JOINING = "joining"
    TRAINING = "training"
    GONE = "gone"
    TOLD = "told that the run is closed"


@dataclass(kw_only=True)
class Link(RendezvousBackend):
    """The way of one agent to the backend; may be cut, and another agent may write first."""

    shared: CheckedBackend
    is_cut: bool = False
    interloper: "Agent | None" = None

    @property
    def name(self) -> str:
        return self.shared.name

    def get_state(self) -> tuple[bytes, Token] | None:
        self._check()
        return self.shared.get_state()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        self._check()
        interloper, self.interloper = self.interloper, None
        if interloper is not None:
            interloper.beat()
        return self.shared.set_state(state, token)

    def _check(self) -> None:
        if self.is_cut:
            raise RendezvousConnectionError("the connection is cut")


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What an agent was told when a round was complete."""

    round: int
    rank: int
    world_size: int


@dataclass(kw_only=True)
class Agent:
    """One agent process."""

    name: str
    node: Node
    peer: Peer
    link: Link
    mode: Mode = Mode.JOINING
    is_paused: bool = False
    is_deaf: bool = False
    """Trains on without ever asking whether it must re-join."""
    next_beat: float = 0.0
    memberships: list[Membership] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        return self.mode in (Mode.JOINING, Mode.TRAINING)

    def beat(self) -> None:
        """A heartbeat, if the way to the backend is open."""
        with contextlib.suppress(RendezvousConnectionError):
            self.peer.step(Intent.BEAT)

    def act(self) -> None:
        """Join or, while training, find out whether to join again."""
        if self.mode is Mode.JOINING:
            self._join()
        elif self.mode is Mode.TRAINING and not self.is_deaf:
            state = self.peer.step(Intent.WATCH).after
            if nodes_waiting(state, round=self.memberships[-1].round):
                self.mode = Mode.JOINING

    def _join(self) -> None:
        state = self.peer.step(Intent.JOIN).after
        if state.closed is not None:
            self.mode = Mode.TOLD
        elif self.peer.is_in(state):
            self.peer.enter_round(state)
            rank = state.rank(self.node.key)
            assert rank is not None
            self.memberships.append(Membership(round=state.round, rank=rank, world_size=len(state.participants)))
            self.mode = Mode.TRAINING


class VirtualRun:
    """The agents of a run, its backend and its clock."""

    def __init__(
        self,
        *,
        min_nodes: int,
        max_nodes: int,
        last_call: float = 5.0,
        interval: float = 1.0,
        attempts: int = 3,
        seed: int = 0,
    ) -> None:
        limits = Limits(min_nodes=min_nodes, max_nodes=max_nodes)
        self.rules = Rules(limits=limits, last_call=last_call, interval=interval, attempts=attempts)
        self.backend = CheckedBackend(limits)
        self.now = 0.0
        self.agents: dict[str, Agent] = {}
        self._started = 0
        self._rng = random.Random(seed)

    @property
    def state(self) -> State:
        """The stored state."""
        return self.backend.state

    def start(self, *names: str, pod_name: str = "") -> None:
        """Start a process for each name. A former one of that name is forgotten, dead or alive."""
        for name in names:
            self._started += 1
            node = Node(key=f"{name}-{self._started}", address=f"address-of-{name}", pid=self._started, name=pod_name)
            link = Link(shared=self.backend)
            peer = Peer(link, node, self.rules, source="the test", clock=lambda: self.now)
            self.agents[name] = Agent(name=name, node=node, peer=peer, link=link)

    def leave(self, name: str) -> None:
        """The process ends politely."""
        self.agents[name].peer.step(Intent.LEAVE)
        self.agents[name].mode = Mode.GONE

    def kill(self, *names: str) -> None:
        """The processes end without a word."""
        for name in names:
            self.agents[name].mode = Mode.GONE

    def close(self, name: str) -> None:
        """The process closes the rendezvous."""
        self.agents[name].peer.step(Intent.CLOSE)

    def waiting(self, name: str) -> int:
        """What `num_nodes_waiting()` of a training agent answers now."""
        agent = self.agents[name]
        return nodes_waiting(agent.peer.step(Intent.WATCH).after, round=agent.memberships[-1].round)

    def advance(self, seconds: float) -> None:
        """Let everybody act for a while, in random order."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            alive = [agent for agent in self.agents.values() if agent.is_alive and not agent.is_paused]
            self._rng.shuffle(alive)
            for agent in alive:
                self._act(agent)

    def members(self) -> dict[str, int]:
        """Ranks in the newest complete round, of the agents that train in it and only if all of them do."""
        state = self.state
        ranks = {}
        for name, agent in self.agents.items():
            rank = state.rank(agent.node.key)
            if rank is not None:
                assert agent.mode is Mode.TRAINING, f"{name} is a member and {agent.mode.value}"
                assert agent.memberships[-1] == Membership(
                    round=state.round, rank=rank, world_size=len(state.participants)
                )
                ranks[name] = rank
        return ranks

    def spares(self) -> set[str]:
        """Names of the agents that wait although there is no place."""
        return {name for name, agent in self.agents.items() if agent.node.key in self.state.spares}

    def _act(self, agent: Agent) -> None:
        # Like the driver, which looks each interval whether a beat is due by then.
        agent.next_beat = min(agent.next_beat, self.now + agent.peer.beat_seconds)
        if self.now >= agent.next_beat:
            agent.beat()
            agent.next_beat = self.now + agent.peer.beat_seconds * self._rng.uniform(0.8, 1.0)
        with contextlib.suppress(RendezvousConnectionError):
            agent.act()
