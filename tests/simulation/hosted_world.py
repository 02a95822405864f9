"""A cluster in virtual time: leaders with coordinators over one store, pods that come and go, agents that call.

Everything random comes from one generator, so a seed names one schedule. Calls and answers are delayed, lost and
doubled; agents are killed, paused and cut off, and doubled themselves: another one starts in the pod while the first
goes on calling, also in the name of rounds that it is not in. Leaders are restarted, and replaced while they still
believe that they lead; the clock of each has an offset and a rate of its own.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from elasticjob.rendezvous.coordinator import WaitResult
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders
from elasticjob.rendezvous.protocol import (
    Endpoint,
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinFormed,
    LeaveOutcome,
    ProtocolError,
)
from elasticjob.rendezvous.state import State

from .hosted_agent import Agent
from .hosted_calls import Call, EndpointQuery, Pod, Publication
from .hosted_leader import Leader
from .hosted_store import Cell


@dataclass(kw_only=True)
class Faults:
    """How likely what goes wrong."""

    lost_call: float = 0.0
    lost_answer: float = 0.0
    double_call: float = 0.0
    store: float = 0.0
    slow_pods: float = 3.0


@dataclass(kw_only=True)
class World:
    """The cluster. `wanted` is the size that the user wants; pods are replaced as long as `replaces` is set."""

    seed: int
    wanted: int
    min_nodes: int
    max_nodes: int
    interval: float = 5.0
    now: float = 0.0
    faults: Faults = field(default_factory=Faults)
    close: CloseReason | None = None
    max_failures: int | None = None
    replaces: bool = True

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cell = Cell(self.rng)
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = itertools.count()
        self.pods: dict[str, Pod] = {}
        self.agents: dict[str, Agent] = {}
        self.everybody: list[Agent] = []
        self.told: dict[int, tuple[object, ...]] = {}
        self.attempts: dict[int, int] = {}
        self.silent: set[str] = set()
        self.doubled: set[str] = set()
        """Pods in which more than one agent has run at the same time."""
        self.is_quiet = False
        self.leaders = [Leader(self, 1)]
        self.reconcile()

    # -- time

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (moment, next(self.sequence), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def delay(self, scale: float) -> float:
        return self.rng.expovariate(1 / scale)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.queue and self.queue[0][0] <= end:
            moment, _, action = heapq.heappop(self.queue)
            self.now = max(self.now, moment)
            action()
        self.now = end

    # -- the network

    def call(self, call: Call) -> None:
        rng, faults = self.rng, self.faults
        copies = 1 + (rng.random() < faults.double_call)
        for _ in range(copies):
            if call.agent.is_cut_off or rng.random() < faults.lost_call:
                continue
            leader = rng.choice(self.leaders)
            self.after(self.delay(0.02), partial(leader.run, partial(self._deliver, leader, call)))

    def _deliver(self, leader: Leader, call: Call) -> None:
        def answer(result: object) -> None:
            if self.rng.random() >= self.faults.lost_answer and not call.agent.is_cut_off:
                self.after(self.delay(0.02), lambda: call.reply(result))

        leader.receive(replace(call, reply=answer))

    def hang_up(self, call: Call) -> None:
        """The caller ends its connection; leaders hear of it, or not."""
        for leader, waiter in call.held:
            if not call.agent.is_cut_off and self.rng.random() >= self.faults.lost_call:
                self.after(self.delay(0.02), partial(leader.run, partial(leader.hang_up, call, waiter)))

    # -- the operator

    def orders(self) -> RunOrders:
        succeeded = {pod.index for pod in self.pods.values() if pod.phase is NodePhase.SUCCEEDED}
        alive = {pod.index for pod in self.pods.values() if pod.phase is NodePhase.ALIVE}
        return RunOrders(
            run_id="run",
            namespace="train",
            job="digits",
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            expected=frozenset(range(self.wanted)) - succeeded,
            unable=frozenset(range(self.wanted)) - alive if self.seed % 3 else frozenset(),
            nodes={
                uid: NodeFacts(pod_uid=uid, pod=f"digits-{uid}", index=pod.index, phase=pod.phase)
                for uid, pod in self.pods.items()
            },
            max_worker_failures=self.max_failures,
            last_call_timeout=10.0,
            wait_for_all=30.0 * (self.seed % 2),
            close_timeout=10.0,
            join_timeout=10_000.0,
            keep_alive_interval=self.interval,
            close=self.close,
        )

    def reconcile(self) -> None:
        """Pods are made and deleted as wanted; leaders hear of it a little later."""
        self._scale()
        for leader in self.leaders:
            self.after(self.delay(0.1), partial(leader.run, partial(self._inform, leader)))

    def _inform(self, leader: Leader) -> None:
        """Watches deliver in order: what arrives late is at least as new as what came before."""
        leader.follow(self.orders())

    def _scale(self) -> None:
        if self.close is not None:
            return
        taken = {pod.index for pod in self.pods.values() if pod.phase in (NodePhase.ALIVE, NodePhase.SUCCEEDED)}
        for index in range(self.wanted):
            if index not in taken and self.replaces:
                self._create(index)
        for pod in list(self.pods.values()):
            if pod.index >= self.wanted and pod.phase is NodePhase.ALIVE:
                pod.phase = NodePhase.DRAINING
                self.after(self.delay(3.0), partial(self.delete, pod.uid))

    def _create(self, index: int) -> None:
        attempt = self.attempts[index] = self.attempts.get(index, 0) + 1
        pod = Pod(uid=f"{index}-{attempt}", index=index)
        self.pods[pod.uid] = pod
        self.after(self.delay(self.faults.slow_pods), lambda: self._start(pod))

    def _start(self, pod: Pod) -> None:
        if pod.uid in self.pods and pod.phase is NodePhase.ALIVE:
            self._spawn(pod)

    def _spawn(self, pod: Pod) -> None:
        agent = Agent(self, pod, f"i{len(self.everybody)}")
        self.agents[pod.uid] = agent
        self.everybody.append(agent)

    # -- what happens

    def delete(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self._kill(uid)
        self.reconcile()

    def _kill(self, uid: str) -> None:
        """All processes in the pod end."""
        self.agents.pop(uid, None)
        for agent in self.everybody:
            if agent.pod.uid == uid:
                agent.is_dead, agent.is_training = True, False

    def drain(self, uid: str) -> None:
        """The pod is being deleted; its agent lives on for a while, and its index is wanted from another pod."""
        self.pods[uid].phase = NodePhase.DRAINING
        self.after(self.delay(10.0), lambda: self.delete(uid) if uid in self.pods else None)
        self.reconcile()

    def fail_pod(self, uid: str) -> None:
        self._kill(uid)
        self.pods[uid].phase = NodePhase.FAILED
        self.reconcile()

    def crash_silently(self, uid: str, *, for_good: bool = False) -> None:
        """The node is cut off or dead; the API server says nothing, unless the kubelet notices after a while."""
        self._kill(uid)
        if for_good:
            self.silent.add(uid)
            return
        self.after(60 + self.delay(30), lambda: self.delete(uid) if uid in self.pods else None)

    def restart_agent(self, uid: str) -> None:
        self._kill(uid)
        pod = self.pods[uid]
        self.after(self.delay(1.0), lambda: self._start(pod))

    def double_agent(self, uid: str, calls: int) -> None:
        """Another agent starts in the pod. The one that is there goes on, whatever it is told."""
        old, pod = self.agents[uid], self.pods[uid]
        self.doubled.add(uid)
        self.after(self.delay(1.0), lambda: self._start(pod) if self.agents.get(uid) is old else None)
        moment = 0.0
        for _ in range(calls):
            moment += self.delay(4.0)
            self.after(moment, lambda: old.pretend() if uid in self.pods and not self.is_quiet else None)

    def cut_off(self, agent: Agent, seconds: float) -> None:
        """Nothing that it sends or is sent arrives; it goes on as if nothing were."""
        agent.is_cut_off = True

        def heal() -> None:
            agent.is_cut_off = False

        self.after(seconds, heal)

    def pause(self, who: "Agent | Leader", seconds: float) -> None:
        who.is_paused = True
        self.after(seconds, who.resume)

    def restart_leader(self) -> None:
        for leader in self.leaders:
            leader.is_dead = True
        epoch = max(leader.epoch for leader in self.leaders) + 1
        self.leaders = [Leader(self, epoch)]

    def split_leaders(self, seconds: float) -> None:
        """A second leader takes over while the first goes on; callers reach either."""
        old = self.leaders[-1]
        self.leaders = [old, Leader(self, old.epoch + 1)]

        def heal() -> None:
            for leader in self.leaders[:-1]:
                leader.is_dead = True
            self.leaders = self.leaders[-1:]

        self.after(seconds, heal)

    def succeed(self, agent: Agent) -> None:
        """The workers of a node have done their work."""
        if not agent.is_training:
            return
        agent.leave(LeaveOutcome.SUCCEEDED)
        self._kill(agent.pod.uid)
        pod = agent.pod

        def end() -> None:
            if pod.uid in self.pods:
                pod.phase = NodePhase.SUCCEEDED
                self.reconcile()

        self.after(self.delay(1.0), end)

    def resize(self, wanted: int) -> None:
        self.wanted = wanted
        self.reconcile()

    def order_close(self, reason: CloseReason) -> None:
        self.close = reason
        self.reconcile()

    # -- what must hold

    def check_decided(self, state: State, orders: RunOrders) -> None:
        """A round is formed of pods that, as far as its leader knows, are alive and go on living."""
        if state.complete and state.closed is None:
            for uid in state.participants:
                fact = orders.nodes.get(uid)
                assert fact is not None, f"{uid} is gone and was let into round {state.round}"
                assert fact.phase is NodePhase.ALIVE, (
                    f"{uid} is {fact.phase.value} and was let into round {state.round}"
                )

    def check_answer(self, call: Call, result: WaitResult) -> None:
        uid, request = call.agent.pod.uid, call.request
        if isinstance(result, HeartbeatAnswer):
            assert isinstance(request, HeartbeatRequest)
            self.check_heartbeat(uid, request, result)
        elif isinstance(result, Endpoint):
            assert isinstance(request, EndpointQuery)
            assert uid in self.cell.rounds[request.round].participants, f"{uid} is not in round {request.round}"
            assert result == self._endpoint_of(request.round), f"round {request.round} was told {result}"
        elif isinstance(result, JoinFormed):
            stored = self.cell.rounds.get(result.round)
            assert stored is not None, f"round {result.round} was told before it was stored"
            assert [node.name for node in stored.participants.values()] == [member.pod for member in result.members]
        elif isinstance(result, ProtocolError) and result.code is ErrorCode.CLOSED:
            assert self.cell.history[-1].closed is not None, "the end was told before it was stored"

    def _endpoint_of(self, round: int) -> Endpoint:
        return Endpoint(address=next(iter(self.cell.rounds[round].participants)), port=round)

    def check_published(self, leader: Leader, uid: str, publication: Publication) -> None:
        """Only rank 0 of the newest round of this leader says where its store listens."""
        assert leader.coordinator is not None
        assert publication.round == leader.coordinator.round
        endpoint, incarnation = publication.request.endpoint, publication.request.incarnation
        assert endpoint == self._endpoint_of(publication.round), f"{uid} published for round {publication.round}"
        known = leader.known.get(uid, incarnation)
        assert known == incarnation, f"{incarnation} of {uid} published, and {known} is in the round"

    def check_heartbeat(self, uid: str, request: HeartbeatRequest, answer: HeartbeatAnswer) -> None:
        """Nobody is left in peace in a round that is not the newest of this leader, or that it is not in."""
        assert answer.round == 0 or answer.round in self.cell.rounds, (
            f"round {answer.round} was told before it was stored"
        )
        if answer.closed is not None:
            assert self.cell.history[-1].closed is not None, "the end was told before it was stored"
        elif not answer.evicted:
            assert request.round == answer.round
            assert uid in self.cell.rounds[request.round].participants

    def check_member(self, pod: Pod, answer: JoinFormed) -> None:
        members = answer.members
        assert self.told.setdefault(answer.round, members) == members, f"round {answer.round} was told in two ways"
        assert members[answer.rank].pod == f"digits-{pod.uid}"
        assert [member.rank for member in members] == list(range(len(members)))
        indexes = [member.index for member in members]
        assert indexes == sorted(set(indexes)), f"ranks do not follow the indexes: {indexes}"
        assert len(members) <= self.max_nodes
        if not any(agent.has_succeeded for agent in self.everybody):
            assert len(members) >= self.min_nodes

    def fenced(self, agent: Agent) -> None:
        """An agent was refused for good. If another one was in its pod, either may be meant; one is started anew."""
        uid, pod = agent.pod.uid, self.pods.get(agent.pod.uid)
        if pod is None or pod.phase is not NodePhase.ALIVE or self.agents.get(uid) is not agent:
            return
        assert uid in self.doubled, "a living agent was fenced"
        others = [other for other in self.everybody if other.pod is pod and not other.is_dead]
        if others:
            self.agents[uid] = others[-1]
        else:
            self.restart_agent(uid)

    def quiet(self) -> None:
        """Nothing goes wrong from now on, and there is one leader."""
        self.is_quiet = True
        self.faults = replace(self.faults, lost_call=0.0, lost_answer=0.0, double_call=0.0)
        self.cell.fault_rate = 0.0
        if any(leader.is_dead or leader.is_paused for leader in self.leaders) or len(self.leaders) > 1:
            self.restart_leader()
        for agent in self.everybody:
            agent.is_cut_off = False
            if agent.is_paused:
                agent.resume()
        self.reconcile()

    def check_settled(self) -> None:
        """Every wanted node that lives is in the newest round, or has been told that the run is closed."""
        if self.close is not None:
            assert all(agent.is_dead for agent in self.agents.values()), "an agent was not told that the run is closed"
            return
        newest = max(self.cell.rounds, default=0)
        finishing = any(agent.has_succeeded for agent in self.everybody)
        silent = {
            self.pods[uid].index for uid in self.silent if uid in self.pods and self.pods[uid].index < self.wanted
        }
        if self.wanted - len(silent) < self.min_nodes:
            return
        for uid, agent in self.agents.items():
            pod = self.pods[uid]
            if pod.index < self.wanted and pod.phase is NodePhase.ALIVE and not finishing:
                assert not agent.is_dead, f"the agent of {uid} died"
                assert agent.is_training, f"the agent of {uid} is not in a round"
            if agent.is_training:
                assert agent.round == newest, f"the agent of {uid} is in round {agent.round}, the newest is {newest}"
        at_work = [agent.pod.uid for agent in self.everybody if agent.is_training and not agent.is_dead]
        assert len(at_work) == len(set(at_work)), f"two agents of one pod are in peace: {at_work}"
        for agent in self.everybody if not finishing else ():
            if agent.is_training and not agent.is_dead:
                assert agent.endpoint == self._endpoint_of(newest), f"{agent.pod.uid} was told {agent.endpoint}"
        if newest and not finishing:
            for uid in self.cell.rounds[newest].participants:
                assert uid in self.agents, f"{uid} is dead and was not missed"
