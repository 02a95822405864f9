"""A node stays alive whatever goes wrong, and only the operator's word disturbs it."""

import json
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from elasticjob.rendezvous import heartbeat as heartbeat_module
from elasticjob.rendezvous.heartbeat import Heartbeat
from elasticjob.rendezvous.http_client import Answer, HttpCallError, HttpClient
from elasticjob.rendezvous.protocol import Closed, ErrorCode, HeartbeatAnswer, JoinRequest, Json
from tests.unit.rendezvous.worker.fake_server import FakeServer, refusal


class BrokenHttp(HttpClient):
    """Fails calls in the ways it is told, in order, and then works."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(server.endpoint)
        self.failures: list[BaseException] = []
        self.failed = 0

    def call(self, method: str, path: str, body: Json | None = None, *, timeout: float) -> Answer:
        if self.failures:
            self.failed += 1
            raise self.failures.pop(0)
        return super().call(method, path, body, timeout=timeout)


@pytest.fixture
def http(server: FakeServer) -> BrokenHttp:
    return BrokenHttp(server)


@pytest.fixture
def beating(server: FakeServer, http: BrokenHttp) -> Iterator[Heartbeat]:
    """A heartbeat in round 0, the round of the server."""
    server.members = {"": JoinRequest(incarnation="x", address="10.0.0.1", pid=1)}
    heartbeat = Heartbeat(http, path="/v1/runs/run-1", incarnation="x")
    heartbeat.pause()
    heartbeat.resume(0)
    server.wait_for("heartbeat", 2)
    yield heartbeat
    heartbeat.finish({"incarnation": "x", "round": 0, "outcome": "left"}, timeout=2)


def _eventually(condition: Callable[[], object], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionResetError("reset"),
        TimeoutError("read"),
        HttpCallError("down"),
        KeyError("TTL"),
        json.JSONDecodeError("no", "", 0),
        MemoryError(),
        RuntimeError("can't start new thread"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        RecursionError(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_no_exception_ends_the_heartbeats(
    server: FakeServer,
    http: BrokenHttp,
    beating: Heartbeat,
    failure: BaseException,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        http.failures = [failure] * 3
        _eventually(lambda: http.failed == 3)
        server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 2)
        _eventually(lambda: "answers again" in caplog.text)
    assert caplog.text.count("does not answer, trying on") == 1
    assert beating.nodes_waiting == 0


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"oops", {}),
        (503, b"", {"Retry-After": "0"}),
        (200, b"null", {}),
        (200, b"{}", {}),
        (404, b"<html>", {}),
        refusal(ErrorCode.UNKNOWN_RUN),
        refusal(ErrorCode.UNKNOWN_NODE),
        refusal(ErrorCode.UNAUTHENTICATED),
        refusal(ErrorCode.FORBIDDEN),
        refusal(ErrorCode.NOT_READY),
        refusal(ErrorCode.OVERLOADED),
        refusal(ErrorCode.UNSUPPORTED_PROTOCOL),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1][:40]!r}",
)
def test_an_answer_that_is_no_word_to_this_node_does_not_disturb_training(
    server: FakeServer, beating: Heartbeat, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    server.fail(answer)
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 3)
    assert beating.nodes_waiting == 0
    assert beating.closed is None


@pytest.mark.parametrize("code", [ErrorCode.FENCED, ErrorCode.STALE_ROUND])
def test_a_node_that_has_no_place_any_more_is_sent_to_join(
    server: FakeServer, beating: Heartbeat, code: ErrorCode
) -> None:
    server.fail(refusal(code))
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 1)
    _eventually(lambda: beating.nodes_waiting > 0)


def test_a_closed_run_is_known_and_does_not_make_workers_re_join(server: FakeServer, beating: Heartbeat) -> None:
    server.fail(refusal(ErrorCode.CLOSED, closed=Closed(reason="Failed", message="budget spent")))
    _eventually(lambda: beating.closed is not None)
    assert beating.closed == Closed(reason="Failed", message="budget spent")
    assert beating.nodes_waiting == 0


def test_a_change_is_known_at_once_while_the_server_holds_the_answer(server: FakeServer, beating: Heartbeat) -> None:
    server.update(interval=5.0)
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 1)
    time.sleep(0.2)
    started = time.monotonic()
    server.update(reform=True)
    _eventually(lambda: beating.nodes_waiting > 0)
    assert time.monotonic() - started < 2.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HeartbeatAnswer(round=1), 0),
        (HeartbeatAnswer(round=1, waiting=2), 2),
        (HeartbeatAnswer(round=2), 1),
        (HeartbeatAnswer(round=2, waiting=3), 3),
        (HeartbeatAnswer(round=1, evicted=True), 1),
    ],
)
def test_eviction_and_a_newer_round_count_as_nodes_waiting(
    server: FakeServer, http: BrokenHttp, answer: HeartbeatAnswer, expected: int
) -> None:
    server.interval = 60.0
    heartbeat = Heartbeat(http, path="/v1/runs/run-1", incarnation="x")
    heartbeat.pause()
    server.fail((200, json.dumps({**answer.to_json(), "intervalSeconds": 60}).encode(), {}))
    heartbeat.resume(1)
    server.wait_for("heartbeat", 1)
    if expected:
        _eventually(lambda: heartbeat.nodes_waiting == expected)
    assert heartbeat.nodes_waiting == expected
    heartbeat.finish({"incarnation": "x", "round": 1, "outcome": "left"}, timeout=2)


def test_an_answer_that_arrives_after_the_node_re_joined_does_not_count(server: FakeServer, beating: Heartbeat) -> None:
    server.update(interval=1.0)
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 2)
    time.sleep(0.1)
    beating.pause()
    server.update(round=1)
    beating.resume(1)
    time.sleep(0.3)
    assert beating.nodes_waiting == 0


def test_no_heartbeat_is_sent_while_the_node_joins(server: FakeServer, beating: Heartbeat) -> None:
    beating.pause()
    time.sleep(0.2)
    before = len(server.calls_to("heartbeat"))
    time.sleep(0.3)
    assert len(server.calls_to("heartbeat")) == before


def test_a_server_that_wants_no_pause_is_not_flooded(
    server: FakeServer, beating: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "LEAST_PAUSE_SECONDS", 0.2)
    server.update(interval=0.0)
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 2)
    before = len(server.calls_to("heartbeat"))
    time.sleep(1.0)
    assert len(server.calls_to("heartbeat")) - before <= 6


def test_good_bye_does_not_wait_for_an_answer_that_is_held(server: FakeServer, beating: Heartbeat) -> None:
    server.interval = 60.0
    _eventually(lambda: any(body["wait"] > 20 for body in server.calls_to("heartbeat")))
    started = time.monotonic()
    assert beating.finish({"incarnation": "x", "round": 0, "outcome": "left"}, timeout=5)
    assert time.monotonic() - started < 2


def test_the_answer_may_be_held_until_the_next_beat_is_due(server: FakeServer, beating: Heartbeat) -> None:
    waits = [body["wait"] for body in server.wait_for("heartbeat", 3)]
    assert all(0 < wait <= heartbeat_module.INTERVAL_SECONDS for wait in waits)
