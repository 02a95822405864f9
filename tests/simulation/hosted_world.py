"""A cluster in virtual time: leaders with coordinators over one store, pods that come and go, agents that call.

Everything random comes from one generator, so a seed names one schedule. Calls and answers are delayed, lost and
doubled; agents are killed and paused; leaders are restarted, and replaced while they still believe that they lead.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from elasticjob.rendezvous.coordinator import Answer, Coordinator, Persist, Verify, WaitResult
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore, LeadershipLostError
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders
from elasticjob.rendezvous.protocol import (
    ErrorCode,
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

from .hosted_store import Cell, FaultyBackend

Reply = Callable[[object], None]


@dataclass(kw_only=True)
class Pod:
    """The truth about one pod."""

    uid: str
    index: int
    phase: NodePhase = NodePhase.ALIVE


@dataclass(kw_only=True)
class Faults:
    """How likely what goes wrong."""

    lost_call: float = 0.0
    lost_answer: float = 0.0
    double_call: float = 0.0
    store: float = 0.0
    slow_pods: float = 3.0


class Leader:
    """One operator process. `paused` holds back everything that it does; its calls under way still reach the store."""

    def __init__(self, world: "World", epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.store = FencedStore(FaultyBackend(world.cell), source="the cell", epoch=epoch)
        self.coordinator: Coordinator | None = None
        self.orders = world.orders()
        self.is_dead = False
        self.is_paused = False
        self._backlog: list[Callable[[], None]] = []
        self._replies: dict[int, Reply] = {}
        self._waiters = itertools.count(1)
        self._take_over()

    def run(self, action: Callable[[], None]) -> None:
        """Do something in this process, now or when it goes on."""
        if self.is_dead:
            return
        if self.is_paused:
            self._backlog.append(action)
            return
        action()
        self._carry_out()

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)
        self.run(self._tick)

    def follow(self, orders: RunOrders) -> None:
        self.orders = orders
        if self.coordinator is not None:
            self.coordinator.follow(orders, self.world.now)

    def call(self, uid: str, request: object, reply: Reply) -> None:
        """One call of an agent."""
        coordinator = self.coordinator
        if coordinator is None:
            reply(ProtocolError(ErrorCode.NOT_READY, "no leader yet"))
            return
        try:
            if isinstance(request, JoinRequest):
                self._join(coordinator, uid, request, reply)
            elif isinstance(request, HeartbeatRequest):
                answer = coordinator.heartbeat(uid, request, self.world.now)
                self.world.check_heartbeat(uid, request, answer)
                reply(answer)
            elif isinstance(request, LeaveRequest):
                coordinator.leave(uid, request, self.world.now)
                reply(None)
        except ProtocolError as refusal:
            reply(refusal)

    def _join(self, coordinator: Coordinator, uid: str, request: JoinRequest, reply: Reply) -> None:
        waiter = next(self._waiters)
        self._replies[waiter] = reply
        try:
            coordinator.join(uid, request, waiter, self.world.now)
        except ProtocolError:
            del self._replies[waiter]
            raise
        self.world.after(request.wait, lambda: self.run(lambda: coordinator.poll_over(uid, waiter, self.world.now)))

    def _take_over(self) -> None:
        try:
            state = self.store.take_over()
        except RendezvousConnectionError:
            self.world.after(1.0, lambda: self.run(self._take_over))
            return
        except LeadershipLostError:
            self.is_dead = True
            return
        self.coordinator = Coordinator(self.orders, state, now=self.world.now)
        self._carry_out()

    def _tick(self) -> None:
        if self.coordinator is not None:
            self.coordinator.tick(self.world.now)

    def _carry_out(self) -> None:
        coordinator = self.coordinator
        if coordinator is None or self.is_dead:
            return
        for effect in coordinator.drain():
            if isinstance(effect, Answer):
                self._answer(effect.waiter, effect.result)
            elif isinstance(effect, Persist):
                self.world.check_decided(effect.state, coordinator.orders)
                self.world.after(self.world.delay(0.05), partial(self._save, effect.state))
            elif isinstance(effect, Verify):
                self._verify()
        due = coordinator.next_deadline()
        if due is not None:
            assert due > self.world.now - 120, "a deadline was left behind"
            self.world.at(max(due, self.world.now), lambda: self.run(self._tick_if_due))

    def _tick_if_due(self) -> None:
        assert self.coordinator is not None
        before = self.coordinator.next_deadline()
        self._tick()
        after = self.coordinator.next_deadline()
        if before is not None and before <= self.world.now:
            assert after is None or after > self.world.now, "the coordinator asks for the same tick again"

    def _answer(self, waiter: int, result: WaitResult) -> None:
        self.world.check_answer(result)
        reply = self._replies.pop(waiter)
        reply(result)

    def _save(self, state: object) -> None:
        """The request reaches the store whatever becomes of its sender; only the outcome waits for a paused one."""
        if self.is_dead:
            return
        try:
            self.store.save(state)  # type: ignore[arg-type]
        except RendezvousConnectionError as error:
            message = str(error)
            self.run(lambda: self.coordinator.persist_failed(message))  # type: ignore[union-attr]
            self.world.after(self.world.delay(0.5), lambda: self.run(lambda: self._save(state)))
        except LeadershipLostError:
            assert self.epoch < self.world.cell.history[-1].epoch, "the newest leader gave up"
            self.is_dead = True
        else:
            self.run(lambda: self.coordinator.persisted(self.world.now))  # type: ignore[union-attr]

    def _verify(self) -> None:
        try:
            self.store.verify()
        except LeadershipLostError:
            self.is_dead = True
        except RendezvousConnectionError:
            return


class Agent:
    """One agent process in a pod, as the client library behaves."""

    def __init__(self, world: "World", pod: Pod, incarnation: str) -> None:
        self.world = world
        self.pod = pod
        self.incarnation = incarnation
        self.round = 0
        self.rank = -1
        self.world_size = 0
        self.is_training = False
        self.is_dead = False
        self.is_paused = False
        self.has_succeeded = False
        self.saw_closed = False
        self._backlog: list[Callable[[], None]] = []
        self._calls = 0
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
        self.world.call(self, request, lambda _: None)
        self.is_dead = True

    def _joined(self, answer: object, failure: Failure | None) -> None:
        if not isinstance(answer, JoinFormed):
            self._refused(answer, lambda: self.join(failure))
            return
        assert answer.round > self.round, f"agent of {self.pod.uid} was told round {answer.round} after {self.round}"
        self.round, self.rank, self.world_size = answer.round, answer.rank, answer.world_size
        self.is_training = True
        self.world.check_member(self.pod, answer)
        self._beat_later()

    def _beat_later(self) -> None:
        self.world.after(self.world.interval, partial(self.run, partial(self._beat, self.round)))

    def _beat(self, round: int) -> None:
        if self.is_training and round == self.round:
            request = HeartbeatRequest(incarnation=self.incarnation, round=self.round)
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
            self._beat_later()

    def _refused(self, answer: object, again: Callable[[], None]) -> None:
        code = answer.code if isinstance(answer, ProtocolError) else None
        if code is ErrorCode.CLOSED:
            self._end()
        elif code is ErrorCode.FENCED:
            self.world.check_fenced(self)
            self.is_dead, self.is_training = True, False
        else:
            self.world.after(0.5 if code else 0.01, lambda: self.run(again))

    def _end(self) -> None:
        self.saw_closed, self.is_dead, self.is_training = True, True, False

    def _call(self, request: object, then: Callable[[object], None], *, again: Callable[[], None]) -> None:
        """One call: the first answer counts; without any in time the call is made again."""
        self._calls += 1
        number = self._calls
        settled = [False]

        def reply(answer: object) -> None:
            def take() -> None:
                if not settled[0] and number == self._calls:
                    settled[0] = True
                    then(answer)

            self.run(take)

        def give_up() -> None:
            if not settled[0] and number == self._calls:
                settled[0] = True
                again()

        self.world.call(self, request, reply)
        self.world.after(15.0 if isinstance(request, JoinRequest) else 3.0, lambda: self.run(give_up))


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

    def call(self, agent: Agent, request: object, reply: Reply) -> None:
        rng, faults = self.rng, self.faults
        copies = 1 + (rng.random() < faults.double_call)
        for _ in range(copies):
            if rng.random() < faults.lost_call:
                continue
            leader = rng.choice(self.leaders)
            self.after(self.delay(0.02), partial(leader.run, partial(self._deliver, leader, agent, request, reply)))

    def _deliver(self, leader: Leader, agent: Agent, request: object, reply: Reply) -> None:
        def answer(result: object) -> None:
            if self.rng.random() >= self.faults.lost_answer:
                self.after(self.delay(0.02), lambda: reply(result))

        leader.call(agent.pod.uid, request, answer)

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
        agent = self.agents.pop(uid, None)
        if agent is not None:
            agent.is_dead = True
        self.reconcile()

    def drain(self, uid: str) -> None:
        """The pod is being deleted; its agent lives on for a while, and its index is wanted from another pod."""
        self.pods[uid].phase = NodePhase.DRAINING
        self.after(self.delay(10.0), lambda: self.delete(uid) if uid in self.pods else None)
        self.reconcile()

    def fail_pod(self, uid: str) -> None:
        agent = self.agents.pop(uid, None)
        if agent is not None:
            agent.is_dead = True
        self.pods[uid].phase = NodePhase.FAILED
        self.reconcile()

    def crash_silently(self, uid: str, *, for_good: bool = False) -> None:
        """The node is cut off or dead; the API server says nothing, unless the kubelet notices after a while."""
        agent = self.agents.pop(uid, None)
        if agent is not None:
            agent.is_dead = True
        if for_good:
            self.silent.add(uid)
            return
        self.after(60 + self.delay(30), lambda: self.delete(uid) if uid in self.pods else None)

    def restart_agent(self, uid: str) -> None:
        agent = self.agents.pop(uid)
        agent.is_dead = True
        pod = self.pods[uid]
        self.after(self.delay(1.0), lambda: self._start(pod))

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
        self.agents.pop(agent.pod.uid, None)
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

    def check_answer(self, result: WaitResult) -> None:
        if isinstance(result, JoinFormed):
            stored = self.cell.rounds.get(result.round)
            assert stored is not None, f"round {result.round} was told before it was stored"
            assert [node.name for node in stored.participants.values()] == [member.pod for member in result.members]
        elif isinstance(result, ProtocolError) and result.code is ErrorCode.CLOSED:
            assert self.cell.history[-1].closed is not None, "the end was told before it was stored"

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

    def check_fenced(self, agent: Agent) -> None:
        pod = self.pods.get(agent.pod.uid)
        is_current = self.agents.get(agent.pod.uid) is agent
        assert pod is None or not is_current or pod.phase is not NodePhase.ALIVE, "a living agent was fenced"

    def quiet(self) -> None:
        """Nothing goes wrong from now on, and there is one leader."""
        self.faults = replace(self.faults, lost_call=0.0, lost_answer=0.0, double_call=0.0)
        self.cell.fault_rate = 0.0
        if any(leader.is_dead or leader.is_paused for leader in self.leaders) or len(self.leaders) > 1:
            self.restart_leader()
        for agent in list(self.agents.values()):
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
        if newest and not finishing:
            for uid in self.cell.rounds[newest].participants:
                assert uid in self.agents, f"{uid} is dead and was not missed"
