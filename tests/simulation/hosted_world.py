"""A cluster in virtual time: leaders with coordinators over one store, pods that come and go, agents that call.

Everything random comes from one generator, so a seed names one schedule. Calls and answers are delayed, lost and
doubled; agents are killed, paused and cut off, and doubled themselves: another one starts in the pod while the first
goes on calling, also in the name of rounds that it is not in. Leaders are restarted, and replaced while they still
believe that they lead; the clock of each has an offset and a rate of its own.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from elasticjob.rendezvous.coordinator import Answer, Coordinator, Persist, Verify, WaitResult
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore, LeadershipLostError
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders, RunState, is_served
from elasticjob.rendezvous.protocol import (
    Endpoint,
    EndpointRequest,
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


@dataclass(frozen=True, kw_only=True)
class EndpointQuery:
    """A member asks where the store of its round listens."""

    incarnation: str
    round: int
    wait: float


@dataclass(frozen=True, kw_only=True)
class Publication:
    """An agent says where the store of a round listens."""

    round: int
    request: EndpointRequest


@dataclass(kw_only=True)
class Call:
    """One call of an agent, and under which numbers leaders hold it."""

    agent: "Agent"
    request: object
    reply: Reply
    held: "list[tuple[Leader, int]]" = field(default_factory=list)


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
        self.known: dict[str, str] = {}
        """The agent of each pod whose word counts here: the last that joined, or else the first that was in peace."""
        self._offset, self._rate = world.rng.uniform(0, 1000), world.rng.uniform(0.95, 1.05)
        self._alarm = math.inf
        self._backlog: list[Callable[[], None]] = []
        self._held: dict[int, Call] = {}
        self._waiters = itertools.count(1)
        self._take_over()

    @property
    def now(self) -> float:
        """The time by this leader's clock."""
        return self._offset + self.world.now * self._rate

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
            self.coordinator.follow(orders, self.now)

    def receive(self, call: Call) -> None:
        """One call of an agent."""
        coordinator, request, uid = self.coordinator, call.request, call.agent.pod.uid
        if coordinator is None:
            call.reply(ProtocolError(ErrorCode.NOT_READY, "no leader yet"))
            return
        try:
            if isinstance(request, JoinRequest):
                self._hold(call, request.wait, lambda waiter: coordinator.join(uid, request, waiter, self.now))
                self.known[uid] = request.incarnation
            elif isinstance(request, HeartbeatRequest):
                self._beat(coordinator, call, request)
            elif isinstance(request, EndpointQuery):
                self._hold(call, request.wait, lambda waiter: coordinator.await_endpoint(uid, request.round, waiter))
            elif isinstance(request, Publication):
                coordinator.publish(uid, request.round, request.request, self.now)
                self.world.check_published(self, uid, request)
                call.reply(None)
            elif isinstance(request, LeaveRequest):
                coordinator.leave(uid, request, self.now)
                call.reply(None)
        except ProtocolError as refusal:
            call.reply(refusal)

    def hang_up(self, call: Call, waiter: int) -> None:
        """The caller does not wait any more."""
        if self._held.pop(waiter, None) is not None and self.coordinator is not None:
            self.coordinator.hung_up(call.agent.pod.uid, waiter, self.now)

    def _beat(self, coordinator: Coordinator, call: Call, request: HeartbeatRequest) -> None:
        uid = call.agent.pod.uid
        answer = coordinator.heartbeat(uid, request, self.now)
        wait = min(request.wait, coordinator.longest_hold)
        if answer.tells_nothing and wait > 0:
            self._check_peace(uid, request)
            self._hold(call, wait, lambda waiter: coordinator.hold_beat(uid, waiter))
        else:
            self.world.check_heartbeat(uid, request, answer)
            call.reply(answer)

    def _hold(self, call: Call, wait: float, make: Callable[[int], None]) -> None:
        """Make a call, and hold it until it is answered or its time is over."""
        waiter, uid = next(self._waiters), call.agent.pod.uid
        self._held[waiter] = call
        try:
            make(waiter)
        except ProtocolError:
            del self._held[waiter]
            raise
        call.held.append((self, waiter))

        def over() -> None:
            if waiter in self._held and self.coordinator is not None:
                self.coordinator.poll_over(uid, waiter, self.now)
                self._carry_out()
                assert waiter not in self._held, "a call whose time is over was not answered"

        self.world.after(wait / self._rate, lambda: self.run(over))

    def _take_over(self) -> None:
        try:
            state = self.store.take_over()
        except RendezvousConnectionError:
            self.world.after(1.0, lambda: self.run(self._take_over))
            return
        except LeadershipLostError:
            self.is_dead = True
            return
        self.coordinator = Coordinator(self.orders, state, now=self.now)
        self._carry_out()

    def _tick(self) -> None:
        if self.coordinator is not None:
            self.coordinator.tick(self.now)

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
        self._check_held(coordinator)
        due = coordinator.next_deadline()
        if due is not None:
            assert due > self.now - 120, "a deadline was left behind"
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        """Tick then, or before. As in the host, a deadline that moves on leaves its earlier alarm to find nothing."""
        if due >= self._alarm:
            return
        self._alarm = due

        def ring() -> None:
            if self._alarm == due:
                self._alarm = math.inf
                self._tick_if_due()

        self.world.at(max((due - self._offset) / self._rate + 1e-6, self.world.now), lambda: self.run(ring))

    def _tick_if_due(self) -> None:
        assert self.coordinator is not None
        before = self.coordinator.next_deadline()
        self._tick()
        after = self.coordinator.next_deadline()
        if before is not None and before <= self.now:
            assert after is None or after > self.now, "the coordinator asks for the same tick again"

    def _answer(self, waiter: int, result: WaitResult) -> None:
        call = self._held.pop(waiter, None)
        if call is None:
            return
        self.world.check_answer(call, result)
        call.reply(result)

    def _check_peace(self, uid: str, request: HeartbeatRequest) -> None:
        """Of two agents of one pod only the one whose word counts is left in peace."""
        known = self.known.setdefault(uid, request.incarnation)
        assert known == request.incarnation, f"both {known} and {request.incarnation} of {uid} are left in peace"

    def _check_held(self, coordinator: Coordinator) -> None:
        """No heartbeat is held while there is something to tell its caller."""
        beats = [call for call in self._held.values() if isinstance(call.request, HeartbeatRequest)]
        if not beats:
            return
        assert coordinator.view(self.now).state is RunState.FORMED, "a heartbeat is held although there is news"
        for call in beats:
            assert call.request.round == coordinator.round  # type: ignore[attr-defined]
            assert is_served(self.orders.nodes.get(call.agent.pod.uid)), "a heartbeat of a dead pod is held"

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
            self.run(lambda: self.coordinator.persisted(self.now))  # type: ignore[union-attr]

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
        if newest and not finishing:
            for uid in self.cell.rounds[newest].participants:
                assert uid in self.agents, f"{uid} is dead and was not missed"
