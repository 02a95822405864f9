"""Broken and hostile clients over real TLS connections, beside a job that must not notice any of them.

What each of them may cost is bounded by the limits of the server. These are small here, so that the tests need not
wait for the real ones. Each client is refused in its own way: by an answer where one can be read, else by the end of
the connection; each way is counted; and nothing is left of any of them.
"""

import asyncio
import contextlib
import gc
import json
import resource
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest

from elasticjob.operator.errors import NotFound
from elasticjob.operator.ports import Body
from elasticjob.operator.server.certificates import TlsKeeper
from elasticjob.operator.server.connections import Connection, ServerLimits
from elasticjob.operator.server.http1 import MAX_HEAD
from elasticjob.operator.server.tls import TlsLayer
from elasticjob.rendezvous.protocol import MAX_REQUEST_BYTES
from tests.unit.operator.hosted import RUN, Hosted, Setting, join_body, orders, serving

IDLE = 10_000
FILES = IDLE + 1_000
PATIENCE = 60.0
"""Seconds after which something that should happen at once is given up, on however busy a machine."""
HASTY = ServerLimits(request_timeout=1.0, idle_timeout=1.0)
HEADERS = "Host: a\r\nAuthorization: Bearer uid-0\r\nElasticjob-Protocol: 1\r\n"
KINDS = (Connection, TlsLayer)


class OneSecret:
    """The part of a cluster that keeps the certificates."""

    async def get(self, resource: object, **where: object) -> Body:
        raise NotFound("no such secret")

    async def create(self, resource: object, body: Body, **where: object) -> Body:
        return body


@dataclass(kw_only=True)
class Site:
    """A server with TLS and one job of one node, which is in round 1."""

    hosted: Hosted
    setting: Setting

    @property
    def port(self) -> int:
        return self.hosted.server.port

    def count(self, name: str, **labels: str) -> float:
        return self.setting.metrics.registry.get_sample_value(f"elasticjob_rendezvous_{name}", labels) or 0.0

    def cut(self, cause: str) -> float:
        return self.count("connections_cut_total", cause=cause)

    def refused(self, code: str) -> float:
        return self.count("calls_refused_total", code=code)

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0.01)

    async def is_undisturbed(self) -> None:
        """The job beats and goes through another round."""
        beat = (await self.hosted.beat(self.round))[1]
        assert (beat["round"], beat["waiting"], beat["evicted"]) == (self.round, 0, False)
        status, body = await self.hosted.join(round=self.round)
        assert (status, body["round"]) == (200, self.round + 1)
        self.round += 1

    round: int = 1


@contextlib.asynccontextmanager
async def site(limits: ServerLimits) -> AsyncIterator[Site]:
    """A site; in the end, nothing is left of its clients."""
    keeper = TlsKeeper(
        OneSecret(),  # type: ignore[arg-type]  # what is needed of a cluster
        namespace="system",
        name="tls",
        names=("127.0.0.1",),
        wall=lambda: datetime.now(timezone.utc),
    )
    await keeper.ensure()
    trusting = ssl.create_default_context(cadata=keeper.bundle)
    setting = Setting(server_limits=limits, server_tls=keeper.context, client_tls=trusting)
    async with serving(setting, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        assert (await hosted.join())[1]["round"] == 1
        made = Site(hosted=hosted, setting=setting)
        yield made
        await made.is_undisturbed()
        await made.until(lambda: made.count("connections") == 0)
        await made.until(lambda: not alive())


def alive() -> list[object]:
    """What the server has of connections, wherever it is held."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, KINDS)]


async def secured(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after its handshake."""
    return await asyncio.open_connection("127.0.0.1", site.port, ssl=site.setting.client_tls)


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """All that still comes before the server ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        async with asyncio.timeout(PATIENCE):
            while more := await reader.read(65536):
                data += more
    return data


def refusal(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)["error"]
    return int(head.split()[1]), error["code"]


def hello() -> bytes:
    """What a client sends first."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("junk", "cause"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "tls"),
        (bytes(range(256)) * 4, "tls"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "tls"),
        (b"\x16\x03\x01\xff\xff" + bytes(1000), "tls"),
        (hello()[:5] + bytes(len(hello()) - 5), "tls"),
        (b"\x16", "handshake-timeout"),
        (b"", "handshake-timeout"),
        (hello()[:100], "handshake-timeout"),
        (hello(), "handshake-timeout"),
    ],
    ids=["http", "bytes", "short", "long", "zeros", "one-byte", "nothing", "half-a-hello", "no-answer"],
)
async def test_whoever_does_not_set_up_tls_is_cut(junk: bytes, cause: str) -> None:
    async with site(HASTY) as where:
        reader, writer = await asyncio.open_connection("127.0.0.1", where.port)
        writer.write(junk)
        answer = await end_of(reader)
        assert b"HTTP/" not in answer
        assert where.cut(cause) == 1
        writer.close()


async def test_a_client_that_does_not_trust_the_server_is_counted() -> None:
    async with site(ServerLimits()) as where:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", where.port, ssl=ssl.create_default_context())
        await where.until(lambda: where.cut("tls") == 1)


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b""),
        (b"POST /v1/runs/x/join HTTP/1.1\r\n", b"X-Slow: 1\r\n"),
        (b"POST /v1/runs/x/join HTTP/1.1\r\nX-Slow: ", b"a"),
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Content-Length: 60000\r\n\r\n".encode(), b"{"),
    ],
    ids=["nothing", "headers", "one-header", "body"],
)
async def test_a_request_that_drips_in_is_answered_and_cut_in_time(start: bytes, drop: bytes) -> None:
    async with site(HASTY) as where:
        reader, writer = await secured(where)
        writer.write(start)
        answered = asyncio.create_task(end_of(reader))
        while not answered.done():
            writer.write(drop)
            await asyncio.wait({answered}, timeout=0.02)
        assert refusal(answered.result()) == (408, "request-timeout")
        assert (where.cut("request-timeout"), where.refused("request-timeout")) == (1, 1)
        writer.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
async def test_a_connection_that_breaks_in_the_middle_of_a_body_leaves_nothing(is_reset: bool) -> None:
    async with site(ServerLimits()) as where:
        _, writer = await secured(where)
        body = json.dumps(join_body(round=1)).encode()
        head = f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[: len(body) // 2])
        await writer.drain()
        if is_reset:
            plain: socket.socket = writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()
        await where.until(lambda: where.cut("broken") == 1)


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Content-Length: {MAX_REQUEST_BYTES + 1}", 413, "too-large"),
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Content-Length: {10**12 - 1}", 413, "too-large"),
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Content-Length: {10**30}", 400, "invalid"),
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked", 400, "invalid"),
        (f"POST /v1/runs/{RUN}/join HTTP/1.1\r\n{HEADERS}X: {'x' * MAX_HEAD}", 400, "invalid"),
    ],
    ids=["one-too-many", "huge", "no-number", "chunked", "head"],
)
async def test_a_request_that_is_too_large_is_answered_while_it_still_arrives(
    head: str, status: int, code: str
) -> None:
    async with site(ServerLimits()) as where:
        reader, writer = await secured(where)
        writer.write(head.encode() + b"\r\n\r\n")
        answered = asyncio.create_task(end_of(reader))
        while not answered.done():
            writer.write(b"x" * 4096)
            await asyncio.wait({answered}, timeout=0.01)
        assert refusal(answered.result()) == (status, code)
        assert where.refused(code) == 1
        writer.close()


async def test_a_flood_behind_a_held_call_is_cut() -> None:
    async with site(ServerLimits()) as where:
        reader, writer = await secured(where)
        beat = json.dumps({"incarnation": "a", "round": 1, "endpoint": None, "wait": 4}).encode()
        head = f"POST /v1/runs/{RUN}/heartbeat HTTP/1.1\r\n{HEADERS}Content-Length: {len(beat)}\r\n\r\n"
        writer.write(head.encode() + beat)
        await where.until(lambda: where.count("connected_nodes") == 1)
        writer.write(b"x" * (MAX_HEAD + MAX_REQUEST_BYTES + 1))
        assert b"HTTP/" not in await end_of(reader)
        assert where.cut("flood") == 1
        writer.close()


async def test_a_connection_without_a_call_is_closed_in_time() -> None:
    async with site(HASTY) as where:
        reader, writer = await secured(where)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert refusal(await end_of(reader)) == (426, "unsupported-protocol")
        assert where.cut("idle-timeout") >= 1
        writer.close()


async def test_one_connection_too_many_is_refused_and_those_that_are_there_are_served() -> None:
    most = 200
    async with site(ServerLimits(connections=most)) as where:
        idle = [await secured(where) for _ in range(most - 1)]
        await where.until(lambda: where.count("connections") == most - 1)
        last = await secured(where)
        reader, writer = await asyncio.open_connection("127.0.0.1", where.port)
        writer.write(hello())
        assert await end_of(reader) == b""
        assert where.count("connections_refused_total") == 1
        last[1].transport.abort()
        await where.until(lambda: where.count("connections") == most - 1)
        await where.is_undisturbed()
        for _, each in [*idle, (reader, writer)]:
            each.transport.abort()


IDLERS = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), int(sys.argv[3])))
kept = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def many_files() -> int:
    """This process and its children may open this many files."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, FILES), max(most, FILES)))
    except ValueError:
        pytest.fail(f"{IDLE} connections need {FILES} open files, but this user may open {most} (ulimit -Hn)")
    return max(most, FILES)


async def test_ten_thousand_idle_connections_disturb_nobody_and_leave_nothing(many_files: int) -> None:
    async with site(ServerLimits(request_timeout=600)) as where:
        blocks = [await _idle_for_a_while(where, many_files) for _ in range(2)]
        # What the first wave fills once stays, such as buffers; of the second, not one block for ten clients is left.
        assert blocks[1] - blocks[0] < IDLE / 10


async def _idle_for_a_while(where: Site, files: int) -> int:
    """Blocks of memory that are in use after so many clients have come and gone."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", IDLERS, str(where.port), str(IDLE), str(files))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 2 * PATIENCE) == b"open\n"
        await where.until(lambda: where.count("connections") == IDLE)
        await where.is_undisturbed()
    finally:
        process.stdin.close()
        await process.wait()
    await where.until(lambda: where.count("connections") == 0)
    gc.collect()
    return sys.getallocatedblocks()
