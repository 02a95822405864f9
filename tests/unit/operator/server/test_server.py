"""The HTTP face: what each call answers, and what hostile or broken clients get."""

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticjob.operator.server.connections import ServerLimits
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.rendezvous.client import HostedRendezvousClient, NodeFencedError, RunClosedError
from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import CloseReason, RunState
from elasticjob.rendezvous.protocol import LeaveOutcome
from elasticjob.rendezvous.state import State
from tests.unit.operator.hosted import RUN, Hosted, Setting, TokensAreUids, join_body, node, orders, serving


async def form(hosted: Hosted, nodes: int) -> list[dict[str, Any]]:
    await hosted.viewed(lambda view: not view.failed)
    answers = await asyncio.gather(*(hosted.join(f"uid-{index}") for index in range(nodes)))
    assert {status for status, _ in answers} == {200}
    return [body for _, body in answers]


async def test_joining_answers_rank_and_members() -> None:
    async with serving(None, orders(2)) as hosted:
        answers = await form(hosted, 2)
        assert answers[1] == {
            "state": "formed",
            "round": 1,
            "rank": 1,
            "worldSize": 2,
            "members": [
                {"rank": 0, "index": 0, "pod": "digits-0-0", "address": "10.0.0.1"},
                {"rank": 1, "index": 1, "pod": "digits-1-0", "address": "10.0.0.1"},
            ],
        }


async def test_a_caller_about_whom_somebody_has_to_be_asked_is_answered_all_the_same() -> None:
    async with serving(None, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        status, answer = await hosted.join("uid-0?")
        assert (status, answer["state"]) == (200, "formed")
        status, _ = await hosted.beat(7, "uid-0?")
        assert status == 503


async def test_a_node_that_has_to_wait_is_told_what_for() -> None:
    async with serving(None, orders(2, min_nodes=2)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        status, body = await hosted.join(wait=0)
        assert status == 200
        assert body["state"] == "waiting"
        assert (body["joined"], body["expected"], body["min"]) == (1, 2, 2)
        assert body["deadlineSeconds"] == pytest.approx(600, abs=5)


async def test_heartbeats_tell_whether_to_join_again() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        good = {"round": 1, "waiting": 0, "closed": None, "evicted": False, "intervalSeconds": 5.0}
        assert await hosted.beat(1) == (200, good)
        assert (await hosted.beat(0))[1]["evicted"] is True
        await hosted.join("uid-1", round=1, wait=0)
        assert (await hosted.beat(1))[1]["waiting"] == 1


async def test_rank_0_publishes_where_its_store_listens() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        path = f"/v1/runs/{RUN}/rounds/1/endpoint"
        waiting = asyncio.create_task(hosted.call("GET", f"{path}?wait=10", uid="uid-1"))
        await asyncio.sleep(0.02)
        body = {"incarnation": "a", "address": "fd00::1", "port": 29500}
        assert await hosted.call("PUT", path, body) == (200, {})
        assert await waiting == (200, {"address": "fd00::1", "port": 29500})
        status, refused = await hosted.call("GET", f"/v1/runs/{RUN}/rounds/2/endpoint")
        assert (status, refused["error"]["code"]) == (503, "not-ready"), "somebody else may lead, who knows it"


async def test_a_node_that_leaves_is_not_closing_the_run() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        body = {"incarnation": "a", "round": 1, "outcome": "failed", "exitCode": 1, "message": "boom"}
        assert await hosted.call("POST", f"/v1/runs/{RUN}/leave", body, uid="uid-1") == (200, {})
        answer = (await hosted.beat(1))[1]
        assert (answer["waiting"], answer["closed"]) == (1, None)


async def test_a_closed_run_says_why() -> None:
    async with serving(None, orders(1)) as hosted:
        await form(hosted, 1)
        hosted.host.apply(orders(1, close=CloseReason.FAILED, close_message="the budget is spent"))
        await hosted.viewed(lambda view: view.state is RunState.CLOSED)
        status, body = await hosted.join(round=1)
        assert status == 410
        assert body["closed"] == {"reason": "Failed", "message": "the budget is spent"}
        assert (await hosted.beat(1))[1]["closed"]["reason"] == "Failed"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"headers": {"Elasticjob-Protocol": "2"}}, 426, "unsupported-protocol"),
        ({"headers": {"Elasticjob-Protocol": ""}}, 426, "unsupported-protocol"),
        ({"headers": {"Authorization": "Basic dTpw"}}, 401, "unauthenticated"),
        ({"uid": "nonsense"}, 401, "unauthenticated"),
        ({"path": "/v1/runs/other/join", "uid": "uid-77"}, 404, "unknown-run"),
        ({"uid": "uid-77"}, 404, "unknown-node"),
        ({"body": b"x" * 70_000}, 413, "too-large"),
        ({"body": b"{"}, 400, "invalid"),
        ({"body": b"[]"}, 400, "invalid"),
        ({"body": b"[" * 60_000}, 400, "invalid"),
        ({"body": b'{"incarnation": "a", "pid": 1e999}'}, 400, "invalid"),
        ({"body": b"\xff\xfe"}, 400, "invalid"),
        ({"path": f"/v1/runs/{RUN}/dance"}, 400, "invalid"),
        ({"path": f"/v1/runs/{RUN}"}, 400, "invalid"),
        ({"path": "/"}, 400, "invalid"),
        ({"path": f"/v1/runs/{RUN}/rounds/1/join"}, 400, "invalid"),
        ({"path": f"/v1/runs/{RUN}/a/b/c/join"}, 400, "invalid"),
        ({"method": "DELETE"}, 400, "invalid"),
        ({"method": "GET", "path": f"/v1/runs/{RUN}/rounds/-1/endpoint"}, 400, "invalid"),
        ({"method": "GET", "path": f"/v1/runs/{RUN}/rounds/{'9' * 30}/endpoint"}, 400, "invalid"),
        ({"method": "GET", "path": f"/v1/runs/{RUN}/rounds/1/endpoint?wait=nan"}, 400, "invalid"),
        ({"method": "GET", "path": f"/v1/runs/{RUN}/rounds/1/endpoint?wait=1e9"}, 400, "invalid"),
    ],
)
async def test_a_call_that_cannot_be_answered_gets_one_typed_refusal(
    change: dict[str, Any], status: int, code: str
) -> None:
    async with serving(None, orders(1, min_nodes=1)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        call = {"method": "POST", "path": f"/v1/runs/{RUN}/join", "body": join_body(), **change}
        answered, body = await hosted.call(
            call["method"], call["path"], call["body"], uid=call.get("uid", "uid-0"), headers=call.get("headers")
        )
        assert (answered, body["error"]["code"]) == (status, code)
        if code.startswith("unknown"):
            assert hosted.last_headers["Retry-After"] == "1"


async def test_a_pod_of_another_run_is_forbidden() -> None:
    other = replace(orders(1, run_id="other"), nodes={"uid-77": node(0, uid="uid-77")})
    async with serving(None, orders(1), other) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        status, body = await hosted.join("uid-77")
        assert (status, body["error"]["code"]) == (403, "forbidden")


async def test_a_dead_pod_is_fenced() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        hosted.host.apply(orders(1))
        await hosted.viewed(lambda view: view.state is not RunState.FORMED)
        status, body = await hosted.beat(1, "uid-1")
        assert (status, body["error"]["code"]) == (403, "fenced")
        assert hosted.host.refusals["fenced"] == 1


async def test_random_bytes_do_not_disturb_the_server() -> None:
    async with serving(None, orders(1)) as hosted:
        for junk in (
            b"\x16\x03\x01" + bytes(range(200)),
            b"GET / HTTP/9.9\r\n\r\n",
            b"\r\n" * 1000,
            b"POST " + b"a" * 9000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", hosted.server.port)
            writer.write(junk)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        await form(hosted, 1)


async def test_a_request_that_never_arrives_is_cut_off() -> None:
    setting = Setting(server_limits=ServerLimits(request_timeout=0.3))
    async with serving(setting, orders(1)) as hosted:
        starts = (b"", b"POST /v1/runs/x/join HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        for data in await asyncio.gather(*(_say_until_cut(hosted.server.port, start) for start in starts)):
            assert not data.startswith(b"HTTP/1.1 200")
        await form(hosted, 1)


async def _say_until_cut(port: int, start: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(start)
    data = await asyncio.wait_for(_read_until_cut(reader), 10)
    writer.close()
    return data


async def _read_until_cut(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_long_poll_is_not_a_slow_request() -> None:
    setting = Setting(server_limits=ServerLimits(request_timeout=0.3))
    async with serving(setting, orders(2, min_nodes=2)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        status, body = await hosted.join(wait=1.5)
        assert (status, body["state"]) == (200, "waiting")


async def test_connections_are_bounded() -> None:
    setting = Setting(server_limits=ServerLimits(connections=2))
    async with serving(setting, orders(1)) as hosted:
        port = hosted.server.port
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(_read_until_cut(reader), 5) == b""
        for _, each in [*kept, (reader, writer)]:
            each.close()


@pytest.mark.parametrize(("open_files", "connections"), [(20_000, 16_384), (1_024, 768), (100, 1)])
def test_no_more_connections_are_served_than_files_may_be_open(open_files: int, connections: int) -> None:
    assert ServerLimits().within(open_files).connections == connections


async def test_what_happens_is_counted() -> None:
    setting = Setting(server_limits=ServerLimits(connections=3))
    async with serving(setting, orders(2)) as hosted:
        await form(hosted, 2)
        await hosted.call("POST", f"/v1/runs/{RUN}/dance")
        held = asyncio.create_task(hosted.beat(1, wait=5))
        sample = setting.metrics.registry.get_sample_value
        async with asyncio.timeout(10):
            while sample("elasticjob_rendezvous_connected_nodes") != 1:  # noqa: ASYNC110 - the server changes it
                await asyncio.sleep(0.005)
        assert sample("elasticjob_rendezvous_calls_refused_total", {"code": "invalid"}) == 1
        assert sample("elasticjob_rendezvous_state_writes_total") == 2
        assert sample("elasticjob_rendezvous_rounds_total", {"cause": "first"}) == 1
        assert sample("elasticjob_rendezvous_round_seconds_count") == 1
        assert sample("elasticjob_rendezvous_connections") == 2
        kept = [await asyncio.open_connection("127.0.0.1", hosted.server.port) for _ in range(2)]
        assert await asyncio.wait_for(_read_until_cut(kept[1][0]), 5) == b""
        assert sample("elasticjob_rendezvous_connections_refused_total") == 1
        for _, each in kept:
            each.close()
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


async def test_a_write_that_comes_too_late_is_counted() -> None:
    setting = Setting()
    async with serving(setting, orders(2)) as hosted:
        await form(hosted, 2)
        hosted.cells[RUN].overwrite(encode(State(round=1, epoch=9)))
        hosted.host.apply(orders(2, close=CloseReason.SUSPENDED))
        await asyncio.wait_for(hosted.has_lost.wait(), 5)
        assert setting.metrics.registry.get_sample_value("elasticjob_rendezvous_stale_writes_refused_total") == 1


async def test_a_request_may_wait_for_a_word_and_the_next_may_come_early() -> None:
    async with serving(None, orders(1)) as hosted:
        reader, writer = await asyncio.open_connection("127.0.0.1", hosted.server.port)
        writer.write(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}" + 2 * b"GET / HTTP/1.1\r\n\r\n")
        for _ in range(3):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert head.startswith(b"HTTP/1.1 426 ")
            await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
        writer.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_both_families_are_served() -> None:
    async with serving(None, orders(1)) as hosted:
        server = RendezvousHttpServer(hosted.host, TokensAreUids(), port=0)
        await server.start()
        for address in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(address, server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 5)
            assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "unsupported-protocol"
            writer.close()
        await server.stop()


# -- the real client against the real server


async def test_a_large_round_is_understood_by_the_worker_library_and_by_other_clients(tmp_path: Path) -> None:
    async with serving(None, orders(30)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        others = [asyncio.create_task(hosted.join(f"uid-{index}")) for index in range(29)]
        worker = client(hosted, tmp_path, "uid-29")
        last = await asyncio.to_thread(worker.join)
        assert [body["members"][29]["pod"] for _, body in await asyncio.gather(*others)] == 29 * ["digits-29-0"]
        assert hosted.last_headers["Content-Encoding"] == "gzip"
        assert (last.rank, [member.index for member in last.members]) == (29, list(range(30)))
        assert await asyncio.to_thread(worker.leave, LeaveOutcome.LEFT)


def client(hosted: Hosted, directory: Path, uid: str) -> HostedRendezvousClient:
    token = directory / uid
    token.write_text(uid)
    endpoint = ServerEndpoint(host="127.0.0.1", port=hosted.server.port, tls=False)
    return HostedRendezvousClient(
        endpoint=endpoint, run_id=RUN, address=f"10.0.0.{uid[-1]}", token_file=token, join_timeout=20
    )


async def test_the_worker_library_goes_through_rounds_with_the_server(tmp_path: Path) -> None:
    async with serving(None, orders(2, keep_alive_interval=0.1)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        one, two = client(hosted, tmp_path, "uid-0"), client(hosted, tmp_path, "uid-1")
        rounds = await asyncio.gather(asyncio.to_thread(one.join), asyncio.to_thread(two.join))
        assert [(each.round, each.rank, each.world_size) for each in rounds] == [(1, 0, 2), (1, 1, 2)]
        await asyncio.to_thread(one.publish_endpoint, 1, "10.0.0.0", 29500)
        assert await asyncio.to_thread(two.fetch_endpoint, 1) == ("10.0.0.0", 29500)
        hosted.host.apply(orders(3, keep_alive_interval=0.1))
        three = client(hosted, tmp_path, "uid-2")
        joining = asyncio.create_task(asyncio.to_thread(three.join))
        await _until_waiting(one, two)
        larger = await asyncio.gather(asyncio.to_thread(one.join), asyncio.to_thread(two.join), joining)
        assert [(each.round, each.rank, each.world_size) for each in larger] == [(2, 0, 3), (2, 1, 3), (2, 2, 3)]
        assert await asyncio.to_thread(three.leave, LeaveOutcome.FAILED)
        await _until_waiting(one, two)
        hosted.host.apply(orders(2, keep_alive_interval=0.1))
        rounds = await asyncio.gather(asyncio.to_thread(one.join), asyncio.to_thread(two.join))
        assert [(each.round, each.world_size) for each in rounds] == [(3, 2), (3, 2)]
        with pytest.raises(NodeFencedError):
            await asyncio.to_thread(three.join)
        hosted.host.apply(orders(2, close=CloseReason.SUCCEEDED))
        with pytest.raises(RunClosedError) as closed:
            await asyncio.to_thread(one.join)
        assert closed.value.succeeded
        for each in (one, two, three):
            await asyncio.to_thread(each.leave, LeaveOutcome.SUCCEEDED)


async def test_survivors_are_told_of_a_lost_pod_long_before_their_next_heartbeat(tmp_path: Path) -> None:
    async with serving(None, orders(3, keep_alive_interval=20.0)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        clients = [client(hosted, tmp_path, f"uid-{index}") for index in range(3)]
        await asyncio.gather(*(asyncio.to_thread(each.join) for each in clients))
        await asyncio.to_thread(clients[0].publish_endpoint, 1, "10.0.0.0", 29500)
        assert not any(each.num_nodes_waiting() for each in clients)
        hosted.host.apply(replace(orders(3, keep_alive_interval=20.0), nodes={f"uid-{i}": node(i) for i in (0, 1)}))
        await _until_waiting(clients[0], clients[1])
        started = asyncio.get_running_loop().time()
        for each in clients:
            assert await asyncio.to_thread(each.leave, LeaveOutcome.LEFT)
        assert asyncio.get_running_loop().time() - started < 5


async def test_a_heartbeat_is_held_while_there_is_nothing_to_tell() -> None:
    async with serving(None, orders(2, keep_alive_interval=20.0)) as hosted:
        await form(hosted, 2)
        started = asyncio.get_running_loop().time()
        assert (await hosted.beat(1, wait=0.3))[1]["waiting"] == 0
        assert asyncio.get_running_loop().time() - started >= 0.29
        held = asyncio.create_task(hosted.beat(1, wait=20))
        await asyncio.sleep(0.05)
        hosted.host.apply(orders(1, keep_alive_interval=20.0))
        assert (await asyncio.wait_for(held, 5))[1]["waiting"] == 1
        status, body = await hosted.beat(1, wait=31)
        assert (status, body["error"]["code"]) == (400, "invalid")


async def test_the_server_ends_although_a_client_keeps_its_connection() -> None:
    async with serving(None, orders(1)) as hosted:
        await form(hosted, 1)
        held = asyncio.create_task(hosted.beat(1, wait=5))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(hosted.server.stop(grace=0.0), 2)
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


async def _until_waiting(*clients: HostedRendezvousClient) -> None:
    async with asyncio.timeout(10):
        while not all(each.num_nodes_waiting() for each in clients):  # noqa: ASYNC110 - another thread changes it
            await asyncio.sleep(0.01)
