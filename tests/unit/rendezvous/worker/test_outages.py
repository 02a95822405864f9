"""An operator that is away for ten minutes ends no agent, on a clock that only moves when somebody waits."""

import json
import logging
import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from elasticjob.rendezvous import client as client_module
from elasticjob.rendezvous import heartbeat as heartbeat_module
from elasticjob.rendezvous import pace
from elasticjob.rendezvous.client import LEAST_PATIENCE_SECONDS, HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.heartbeat import Heartbeat
from elasticjob.rendezvous.http_client import Answer, HttpCallError, HttpClient
from elasticjob.rendezvous.protocol import Endpoint, ErrorCode, HeartbeatAnswer, JoinFormed, Json, LeaveOutcome, Member
from tests.unit.rendezvous.worker.fake_server import refusal

NOBODY = ServerEndpoint(host="127.0.0.1", port=1)
OUTAGE_SECONDS = 600.0
MEMBER = Member(rank=0, index=0, pod="digits-0-0", address="10.0.0.1")
WAITING = {"state": "waiting", "joined": 1, "expected": 2, "min": 2, "deadlineSeconds": None, "message": ""}
FORMED = JoinFormed(round=1, rank=0, members=(MEMBER,)).to_json()
ADDRESS = Endpoint(address="10.0.0.1", port=4321).to_json()
BEATEN = HeartbeatAnswer(round=1).to_json()


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class AwayHttp(HttpClient):
    """Fails in one way until a moment, and from then on gives its answers in order, the last one again and again."""

    def __init__(self, clock: Clock, way: str, *answers: Json, until: float) -> None:
        super().__init__(NOBODY)
        self._clock = clock
        self._way = way
        self._answers = list(answers)
        self._until = until
        self.called_at: list[float] = []

    def call(self, method: str, path: str, body: Json | None = None, *, timeout: float) -> Answer:
        self.called_at.append(self._clock.now)
        if self._clock.now < self._until:
            return self._fail(timeout)
        content = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return Answer(status=200, content=json.dumps(content).encode())

    def _fail(self, timeout: float) -> Answer:
        if self._way == "refused":
            raise HttpCallError("connection refused")
        if self._way == "silent":
            self._clock.now += timeout
            raise HttpCallError("timed out")
        status, content, _ = refusal(ErrorCode(self._way))
        return Answer(status=status, content=content, retry_after=5.0)


class PlayedCondition(threading.Condition):
    """Waits on the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "nothing would ever wake it"
        self._clock.now += timeout
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(client_module, "time", found)
    monkeypatch.setattr(pace, "time", found)
    return found


@pytest.fixture
def make(clock: Clock) -> Iterator[Callable[..., HostedRendezvousClient]]:
    """Makes a client whose calls, but for its heartbeats, are answered as the test says."""
    clients: list[HostedRendezvousClient] = []

    def made(http: HttpClient, *, join_timeout: float = 600.0) -> HostedRendezvousClient:
        client = HostedRendezvousClient(endpoint=NOBODY, run_id="run-1", address="10.0.0.1", join_timeout=join_timeout)
        client._http = http
        clients.append(client)
        return client

    yield made
    for client in clients:
        client.leave(LeaveOutcome.LEFT, timeout=5.0)


CALLS: dict[str, tuple[Callable[[HostedRendezvousClient], Any], Json]] = {
    "join": (lambda client: client.join(), FORMED),
    "publish": (lambda client: client.publish_endpoint(1, "10.0.0.1", 4321), {}),
    "fetch": (lambda client: client.fetch_endpoint(1), ADDRESS),
}
WAYS = ["refused", "silent", "not-ready", "unknown-run", "overloaded", "unauthenticated"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("join_timeout", [60.0, 600.0])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_outlives_an_outage_of_ten_minutes(
    clock: Clock, make: Callable[..., HostedRendezvousClient], name: str, join_timeout: float, way: str
) -> None:
    call, answer = CALLS[name]
    began = clock.now
    call(make(AwayHttp(clock, way, answer, until=began + OUTAGE_SECONDS), join_timeout=join_timeout))
    assert clock.now >= began + OUTAGE_SECONDS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("join_timeout", "patience"), [(60.0, LEAST_PATIENCE_SECONDS), (1200.0, 1200.0)])
def test_a_call_gives_up_after_its_patience_and_says_why(
    clock: Clock,
    make: Callable[..., HostedRendezvousClient],
    name: str,
    join_timeout: float,
    patience: float,
    way: str,
) -> None:
    call, answer = CALLS[name]
    began = clock.now
    client = make(AwayHttp(clock, way, answer, until=float("inf")), join_timeout=join_timeout)
    with pytest.raises(
        RendezvousConnectionError, match=rf"http://127\.0\.0\.1:1 has given no answer for {patience:g} s: .*"
    ) as caught:
        call(client)
    assert {"refused": "connection refused", "silent": "timed out"}.get(way, way) in str(caught.value)
    longest_call = client_module.POLL_SECONDS + client_module.CALL_SECONDS
    longest_pause = client_module.MAX_BACKOFF_SECONDS
    assert began + patience - longest_pause <= clock.now <= began + patience + longest_call


def test_patience_counts_from_the_last_answer_and_waiting_has_no_end(
    clock: Clock, make: Callable[..., HostedRendezvousClient]
) -> None:
    """How long a node may wait is for the operator to say: twenty thousand answers that it has to are no time-out."""
    http = AwayHttp(clock, "refused", *[WAITING] * 20_000, FORMED, until=0.0)
    began = clock.now
    assert make(http, join_timeout=1.0).join().round == 1
    assert clock.now > began + LEAST_PATIENCE_SECONDS


def test_heartbeats_outlive_an_outage_and_disturb_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat_module, "time", clock)
    http = AwayHttp(clock, "silent", BEATEN, until=clock.now + OUTAGE_SECONDS)
    heartbeat = Heartbeat(http, path="/v1/runs/run-1", incarnation="x")
    heartbeat._changed = PlayedCondition(clock)
    heartbeat.resume(1)
    with caplog.at_level(logging.WARNING):
        while not heartbeat._finished and "answers again" not in caplog.text:
            _one_step(heartbeat)
    assert http.called_at[-1] >= 1000.0 + OUTAGE_SECONDS
    assert (heartbeat.nodes_waiting, heartbeat.closed) == (0, None)
    assert caplog.text.count("does not answer, trying on") == 1


def _one_step(heartbeat: Heartbeat) -> None:
    try:
        heartbeat._step()
    except HttpCallError as error:
        heartbeat._failed(error)


def test_nodes_that_lost_the_operator_together_do_not_come_back_in_step(
    clock: Clock, make: Callable[..., HostedRendezvousClient]
) -> None:
    random.seed(7)
    pauses = []
    for _ in range(20):
        clock.pauses.clear()
        make(AwayHttp(clock, "refused", FORMED, until=clock.now + 60.0)).join()
        pauses.append(clock.pauses[8])
    assert len(set(pauses)) == len(pauses)
    assert min(pauses) < 0.3 * client_module.MAX_BACKOFF_SECONDS
    assert max(pauses) > 0.7 * client_module.MAX_BACKOFF_SECONDS


def test_the_nodes_of_a_round_do_not_beat_in_step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do their first beats come at once, nor have they the same distance from then on."""
    monkeypatch.setattr(heartbeat_module, "time", clock)
    monkeypatch.setattr(heartbeat_module, "FIRST_SECONDS", 0.5)
    random.seed(7)
    firsts, distances = [], []
    for _ in range(20):
        http = AwayHttp(clock, "refused", BEATEN, until=0.0)
        heartbeat = Heartbeat(http, path="/v1/runs/run-1", incarnation="x")
        heartbeat._changed = PlayedCondition(clock)
        began = clock.now
        heartbeat.resume(1)
        while len(http.called_at) < 4:
            heartbeat._step()
        firsts.append(http.called_at[0] - began)
        distances.append([later - earlier for earlier, later in pairwise(http.called_at)][-1])
    assert 0.0 <= min(firsts) < 0.15
    assert 0.35 < max(firsts) <= 0.5
    interval = heartbeat_module.INTERVAL_SECONDS
    assert 0.9 * interval <= min(distances) < 0.93 * interval
    assert 0.97 * interval < max(distances) <= interval
