"""Joining rounds of a hosted rendezvous."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from elasticjob.rendezvous import client as client_module
from elasticjob.rendezvous.client import (
    HostedRendezvousClient,
    NodeFencedError,
    Round,
    RunClosedError,
    StaleRoundError,
)
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.errors import RendezvousClosedError, RendezvousConnectionError
from elasticjob.rendezvous.protocol import Closed, ErrorCode, Failure, LeaveOutcome
from tests.unit.rendezvous.worker.conftest import MakeClient
from tests.unit.rendezvous.worker.fake_server import FakeServer, refusal

T = TypeVar("T")


def _in_background(call: Callable[[], T]) -> "Future[T]":
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def _eventually(condition: Callable[[], object], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def _join_all(*clients: HostedRendezvousClient) -> list[Round]:
    futures = [_in_background(client.join) for client in clients]
    return [future.result(20) for future in futures]


def test_nodes_that_join_together_are_in_one_round_with_ranks_in_order(
    server: FakeServer, make_client: MakeClient
) -> None:
    server.update(wanted=2)
    first, second = _join_all(make_client("a"), make_client("b"))
    assert (first.round, first.rank, first.world_size) == (1, 0, 2)
    assert (second.round, second.rank, second.members) == (1, 1, first.members)
    assert [member.address for member in first.members] == ["10.0.0.1", "10.0.0.2"]


def test_a_join_waits_as_long_as_the_operator_says_so(
    server: FakeServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "POLL_SECONDS", 0.05)
    server.update(wanted=2)
    joining = _in_background(make_client("a", join_timeout=0.2).join)
    server.wait_for("join", 5)
    assert not joining.done()
    server.update(wanted=1)
    assert joining.result(20).round == 1


def test_a_node_that_waits_says_what_for(
    server: FakeServer,
    client: HostedRendezvousClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(client_module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(client_module, "REMIND_SECONDS", 0.0)
    server.update(wanted=3)
    joining = _in_background(client.join)
    _eventually(lambda: "waiting with 1 of 3 nodes (at least 1): the test waits" in caplog.text)
    server.update(wanted=1)
    joining.result(20)


@pytest.mark.parametrize(
    "faults",
    [
        [refusal(ErrorCode.UNKNOWN_RUN), refusal(ErrorCode.UNKNOWN_NODE)],
        [refusal(ErrorCode.NOT_READY, headers={"Retry-After": "0"}), refusal(ErrorCode.OVERLOADED)],
        [refusal(ErrorCode.UNAUTHENTICATED), refusal(ErrorCode.STALE_ROUND)],
        [(502, b"<html>bad gateway</html>", {}), (404, b"", {}), (200, b"[]", {}), (200, b'{"state": "odd"}', {})],
        [0.0, 0.0, 0.0],
    ],
)
def test_a_join_outlives_an_operator_that_has_just_started(
    server: FakeServer, client: HostedRendezvousClient, faults: list[object]
) -> None:
    server.fail(*faults)  # type: ignore[arg-type]  # rows of different shapes
    assert client.join().round == 1


def test_a_join_whose_answer_was_lost_is_taken_up_again(server: FakeServer, make_client: MakeClient) -> None:
    server.update(wanted=2)
    client = make_client("a")
    joining = _in_background(client.join)
    server.wait_for("join", 1)
    server.close_connections()
    server.wait_for("join", 2)
    other = make_client("b").join()
    assert (joining.result(20).round, other.round) == (1, 1)
    assert {body["incarnation"] for body in server.calls_to("join")[:2]} == {client.incarnation}


def test_the_next_join_tells_the_last_round_and_the_failure_once(
    server: FakeServer, client: HostedRendezvousClient
) -> None:
    client.join()
    client.join(Failure(exit_code=7, message="worker died"))
    client.join()
    said = [(body["round"], body["failure"]) for body in server.calls_to("join")]
    assert said == [(0, None), (1, {"exitCode": 7, "message": "worker died"}), (2, None)]


def test_a_server_that_is_not_there_is_named_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LEAST_PATIENCE_SECONDS", 0.0)
    nobody = ServerEndpoint(host="127.0.0.1", port=1)
    client = HostedRendezvousClient(endpoint=nobody, run_id="r", address="10.0.0.1", join_timeout=0.3)
    started = time.monotonic()
    with pytest.raises(RendezvousConnectionError, match=r"http://127\.0\.0\.1:1 .*refused"):
        client.join()
    assert time.monotonic() - started < 5.0
    client.leave(LeaveOutcome.LEFT, timeout=0.5)


@pytest.mark.parametrize(
    "code", [ErrorCode.FORBIDDEN, ErrorCode.INVALID, ErrorCode.TOO_LARGE, ErrorCode.UNSUPPORTED_PROTOCOL]
)
def test_a_refusal_that_no_repetition_changes_ends_the_join_at_once(
    server: FakeServer, client: HostedRendezvousClient, code: ErrorCode
) -> None:
    server.fail(refusal(code))
    with pytest.raises(RendezvousConnectionError, match=code.value):
        client.join()
    assert len(server.calls_to("join")) == 1


@pytest.mark.parametrize(("reason", "succeeded"), [("Succeeded", True), ("Failed", False), ("Deleted", False)])
def test_a_closed_run_ends_a_waiting_join_with_the_reason(
    server: FakeServer, client: HostedRendezvousClient, reason: str, succeeded: bool
) -> None:
    server.update(wanted=2)
    joining = _in_background(client.join)
    server.wait_for("join", 1)
    server.update(closed=Closed(reason=reason, message="told by the operator"))
    with pytest.raises(RunClosedError, match="told by the operator") as caught:
        joining.result(20)
    assert (caught.value.reason, caught.value.succeeded) == (reason, succeeded)


def test_a_pod_that_was_given_up_may_not_join(server: FakeServer, client: HostedRendezvousClient) -> None:
    server.update(fenced={"a"})
    with pytest.raises(NodeFencedError) as caught:
        client.join()
    assert isinstance(caught.value, RendezvousClosedError)


def test_the_store_of_rank_0_is_published_to_the_others(server: FakeServer, make_client: MakeClient) -> None:
    server.update(wanted=2)
    zero, one = make_client("a"), make_client("b")
    _join_all(zero, one)
    fetching = _in_background(lambda: one.fetch_endpoint(1))
    server.wait_for("endpoint", 1)
    zero.publish_endpoint(1, "10.0.0.1", 4321)
    assert fetching.result(20) == ("10.0.0.1", 4321)


def test_heartbeats_of_rank_0_repeat_where_its_store_is(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    client.publish_endpoint(1, "10.0.0.1", 4321)
    _eventually(
        lambda: server.calls_to("heartbeat") and server.calls_to("heartbeat")[-1]["endpoint"] is not None, timeout=10
    )
    assert server.calls_to("heartbeat")[-1]["endpoint"] == {"address": "10.0.0.1", "port": 4321}
    client.join()
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 1)
    assert server.calls_to("heartbeat")[-1]["endpoint"] is None


def test_waiting_for_the_store_of_a_round_that_is_over_says_so(server: FakeServer, make_client: MakeClient) -> None:
    server.update(wanted=2)
    zero, one = make_client("a"), make_client("b")
    _join_all(zero, one)
    fetching = _in_background(lambda: one.fetch_endpoint(1))
    server.wait_for("endpoint", 1)
    server.lose("a")
    with pytest.raises(StaleRoundError):
        fetching.result(20)
    with pytest.raises(StaleRoundError):
        zero.publish_endpoint(1, "10.0.0.1", 4321)


def test_a_lost_member_makes_the_others_re_join(server: FakeServer, make_client: MakeClient) -> None:
    server.update(wanted=2)
    zero, one = make_client("a"), make_client("b")
    _join_all(zero, one)
    assert one.num_nodes_waiting() == 0
    server.lose("a", wanted=1)
    _eventually(lambda: one.num_nodes_waiting() > 0)
    formed = one.join()
    assert (formed.round, formed.rank, formed.world_size) == (2, 0, 1)
    assert one.num_nodes_waiting() == 0


def test_leaving_tells_the_outcome_and_ends_the_heartbeats(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    server.wait_for("heartbeat", 1)
    assert client.leave(LeaveOutcome.FAILED, exit_code=7, message="x" * 5000)
    (said,) = server.calls_to("leave")
    assert (said["round"], said["outcome"], said["exitCode"], len(said["message"])) == (1, "failed", 7, 1024)
    beats = len(server.calls_to("heartbeat"))
    time.sleep(3 * server.interval)
    assert len(server.calls_to("heartbeat")) == beats
    assert not [thread for thread in threading.enumerate() if thread.name == "elasticjob-heartbeat"]


def test_leaving_before_any_call_needs_no_server() -> None:
    client = HostedRendezvousClient(endpoint=ServerEndpoint(host="127.0.0.1", port=1), run_id="r", address="10.0.0.1")
    assert client.leave(LeaveOutcome.LEFT)


def test_leaving_does_not_wait_for_a_heartbeat_that_hangs(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    server.wait_for("heartbeat", 1)
    server.fail(8.0)
    server.wait_for("heartbeat", len(server.calls_to("heartbeat")) + 1)
    time.sleep(0.05)
    started = time.monotonic()
    assert client.leave(LeaveOutcome.LEFT, timeout=5.0)
    assert time.monotonic() - started < 2.0


def test_leaving_ends_in_time_when_nobody_answers(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    server.wait_for("heartbeat", 1)
    server.fail(*[3.0] * 20)
    started = time.monotonic()
    assert client.leave(LeaveOutcome.LEFT, timeout=0.5) is False
    assert time.monotonic() - started < 1.5


def test_leaving_ends_in_time_when_the_server_is_gone(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LEAST_PATIENCE_SECONDS", 0.0)
    nobody = ServerEndpoint(host="127.0.0.1", port=1)
    client = HostedRendezvousClient(endpoint=nobody, run_id="r", address="10.0.0.1", join_timeout=0.1)
    with pytest.raises(RendezvousConnectionError):
        client.join()
    started = time.monotonic()
    assert client.leave(LeaveOutcome.LEFT, timeout=0.5) is False
    assert time.monotonic() - started < 1.5


def test_a_name_that_begins_to_resolve_while_a_join_waits_is_found(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, asked = socket.getaddrinfo, 0

    def late(host: str, *arguments: Any, **options: Any) -> Any:
        nonlocal asked
        assert host == "digits-operator.example"
        asked += 1
        if asked <= 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    endpoint = ServerEndpoint(host="digits-operator.example", port=server.endpoint.port)
    client = HostedRendezvousClient(endpoint=endpoint, run_id="run-1", address="10.0.0.1")
    assert client.join().round == 1
    assert asked >= 4
    assert client.leave(LeaveOutcome.SUCCEEDED)


def test_leaving_leaves_no_connection_open(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    assert client.leave(LeaveOutcome.SUCCEEDED)
    assert client._http._connection is None
    assert client._heartbeat._http._connection is None


def test_leaving_twice_is_harmless(server: FakeServer, client: HostedRendezvousClient) -> None:
    client.join()
    assert client.leave(LeaveOutcome.SUCCEEDED)
    assert client.leave(LeaveOutcome.LEFT)
    assert len(server.calls_to("leave")) == 1


def test_a_join_time_out_must_be_positive() -> None:
    with pytest.raises(ValueError, match="join_timeout"):
        HostedRendezvousClient(
            endpoint=ServerEndpoint(host="h", port=1), run_id="r", address="10.0.0.1", join_timeout=0.0
        )
