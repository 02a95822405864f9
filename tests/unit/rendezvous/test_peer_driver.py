"""How a node paces itself: pauses, heartbeats and outages, with a clock that only moves when somebody sleeps."""

import logging
import random
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from elasticjob.rendezvous.backends.kubernetes_objects import ThrottledError
from elasticjob.rendezvous.backends.memory import MemorySpace
from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousTimeoutError
from elasticjob.rendezvous.peer import Intent, Peer, Rules, Step
from elasticjob.rendezvous.peer_driver import PeerDriver, Timing, poll_seconds
from elasticjob.rendezvous.settings import RendezvousSettings, RendezvousTimeout
from elasticjob.rendezvous.state import Limits, Node, State
from tests.unit.rendezvous.peer_run import Backend, raising


class Bench:
    """One driver over a backend in memory, and everything that it did."""

    def __init__(self, *, maximum: int = 2, backoff: float = 0.0) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.steps: list[Step] = []
        self.backend = Backend(MemorySpace("run"))
        limits = Limits(min_nodes=1, max_nodes=maximum)
        rules = Rules(limits=limits, last_call=30, interval=5, attempts=3)
        self.node = Node(key="me", address="10.0.0.1")
        self.peer = Peer(self.backend, self.node, rules, source="the test", clock=lambda: self.now)
        settings = RendezvousSettings("run", 1, maximum, RendezvousTimeout(), timedelta(seconds=5), 3, backoff)
        timing = Timing(clock=lambda: self.now, sleep=self.sleep, rng=random.Random(7))
        self.driver = PeerDriver(self.peer, settings, timing=timing, told=self.steps.append)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    @property
    def state(self) -> State:
        stored = self.backend.get_state()
        assert stored is not None
        return decode(stored[0], source="the test")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _crowd(count: int) -> State:
    return State(participants={str(number): Node(key=str(number), address="x") for number in range(count)})


def test_pauses_grow_up_to_their_limit_and_never_pass_the_deadline() -> None:
    bench = Bench()
    longest = []
    for attempt in range(12):
        bench.pauses.clear()
        for _ in range(200):
            bench.driver.back_off(attempt, None, bench.now + 100)
        longest.append(max(bench.pauses))
    assert all(left <= right * 1.1 for left, right in pairwise(longest))
    assert 0.4 < longest[-1] <= 0.5
    bench.pauses.clear()
    bench.driver.back_off(20, None, bench.now)
    assert bench.pauses == [0.0]


@pytest.mark.parametrize(
    ("state", "maximum", "limit"),
    [
        (State(), 256, 25.6),
        (State(), 5_000, 30.0),
        (_crowd(200), 256, 5.6),
        (replace(_crowd(256), complete=True), 256, 3.2),
        (State(), 2, 0.5),
    ],
)
def test_the_more_nodes_may_want_to_write_the_longer_are_the_pauses(state: State, maximum: int, limit: float) -> None:
    bench = Bench(maximum=maximum)
    for _ in range(300):
        bench.driver.back_off(30, state, bench.now + 100)
    assert limit * 0.9 < max(bench.pauses) <= limit


def test_the_longest_pause_can_be_set() -> None:
    bench = Bench(maximum=256, backoff=2.0)
    for _ in range(300):
        bench.driver.back_off(30, State(), bench.now + 100)
    assert 1.8 < max(bench.pauses) <= 2.0


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 0.1), (20, 0.1), (100, 0.5), (5_000, 1.0)])
def test_the_more_nodes_there_are_the_more_rarely_they_look(nodes: int, seconds: float) -> None:
    assert poll_seconds(_crowd(nodes)) == seconds


def test_a_beat_is_counted_when_it_is_due_and_else_the_node_only_looks(bench: Bench) -> None:
    bench.driver.step(Intent.JOIN, wait=1)
    assert bench.driver.beat() is False
    bench.now += 4
    assert bench.driver.beat() is False
    assert [step.intent for step in bench.steps] == [Intent.JOIN, Intent.WATCH, Intent.BEAT]
    assert bench.state.beats == {"me": 1}
    assert 4 <= bench.driver.next_beat() <= 5


@pytest.mark.parametrize(("asked", "granted"), [(7.0, 7.0), (3600.0, 30.0), (1e11, 30.0), (float("inf"), 30.0)])
def test_a_backend_can_ask_for_a_pause_but_not_for_silence(bench: Bench, asked: float, granted: float) -> None:
    bench.backend.fault = raising(ThrottledError("slow down", retry_after=asked))
    bench.driver.beat()
    assert granted + 4 <= bench.driver.next_beat() <= granted + 5
    bench.driver.back_off(0, None, bench.now + 1e12, at_least=asked)
    assert granted <= bench.pauses[-1] <= granted + 0.05


def test_a_beat_that_others_are_always_quicker_than_is_put_off_quietly(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.driver.step(Intent.JOIN, wait=1)
    bench.backend.loses = True
    bench.now += 5
    assert bench.driver.beat() is False
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    bench.backend.loses = False
    assert bench.driver.beat() is False
    assert bench.state.beats == {"me": 1}


def test_an_outage_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.driver.step(Intent.JOIN, wait=1)
    bench.now += 5
    bench.backend.fault = raising(KeyError("TTL"))
    assert [bench.driver.beat() for _ in range(3)] == [True, False, False]
    bench.backend.fault = None
    assert bench.driver.beat() is False
    bench.now += 5
    bench.backend.fault = raising(MemoryError())
    assert [bench.driver.beat() for _ in range(3)] == [True, False, False]
    assert len([entry for entry in caplog.records if entry.levelno == logging.WARNING]) == 2


def test_an_intent_that_does_not_get_through_ends_at_its_deadline(bench: Bench) -> None:
    bench.backend.loses = True
    begin = bench.now
    with pytest.raises(RendezvousTimeoutError, match="To join the rendezvous 'run' did not succeed in"):
        bench.driver.persist(Intent.JOIN, bench.now + 10)
    assert bench.now == pytest.approx(begin + 10)


def test_a_recent_state_is_not_read_again(bench: Bench) -> None:
    bench.driver.step(Intent.JOIN, wait=1)
    reads = len(bench.steps)
    bench.driver.recent_state()
    assert len(bench.steps) == reads
    bench.now += 0.2
    bench.driver.recent_state()
    assert len(bench.steps) == reads + 1


def test_during_an_outage_the_state_is_the_one_before_it(bench: Bench) -> None:
    bench.backend.fault = raising(RendezvousConnectionError("down"))
    with pytest.raises(RendezvousConnectionError, match="down"):
        bench.driver.recent_state()
    bench.backend.fault = None
    bench.driver.step(Intent.JOIN, wait=1)
    bench.backend.fault = raising(RendezvousConnectionError("down"))
    bench.now += 60
    assert set(bench.driver.recent_state().participants) == {"me"}
    bench.backend.fault = raising(AssertionError("it was asked again"))
    bench.now += 60
    assert set(bench.driver.recent_state().participants) == {"me"}
