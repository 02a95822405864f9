"""Simulated workers for the hosted benchmarks: many in one event loop, each with TLS connections of its own.

They make the calls of the client library with its timing, in as little CPU time as Python allows, since the server
shares the machine with them.
"""

import asyncio
import json
import random
import resource
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticjob.rendezvous.heartbeat import EARLIEST, INTERVAL_SECONDS, LEAST_PAUSE_SECONDS

from .hosted_server import Server

_CONNECTING_AT_ONCE = 64


class Connection(asyncio.Protocol):
    """One HTTP connection; one call at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._parts: list[bytes] = []
        self._missing = 0
        self._is_gzip = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if not self._parts:
            head, _, rest = data.partition(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            self._missing = length - len(rest)
            self._is_gzip = b"Content-Encoding: gzip" in head
            data = rest if head.startswith(b"HTTP/1.1 200") else head + rest
        else:
            self._missing -= len(data)
        self._parts.append(data)
        if self._missing == 0 and self._answer is not None:
            parts, self._parts = self._parts, []
            if self._answer.done():
                return
            answer = b"".join(parts)
            self._answer.set_result(zlib.decompress(answer, 16 + zlib.MAX_WBITS) if self._is_gzip else answer)

    def call(self, request: bytes) -> "asyncio.Future[bytes]":
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass(kw_only=True, eq=False)
class Node:
    """One simulated worker."""

    run_id: str
    index: int
    token: str
    told: Callable[["Node", float], None] | None = None
    joining: Connection = field(default_factory=Connection)
    beating: Connection = field(default_factory=Connection)
    released_at: float = 0.0
    round: int = 0
    rank: int = 0
    beats: int = 0
    """Heartbeats that were answered."""

    def request(self, method: str, path: str, body: object = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /v1/runs/{self.run_id}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n"
            f"Content-Length: {len(content)}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
            f"Elasticjob-Protocol: 1\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        )
        return head.encode() + content

    async def join(self) -> None:
        """Join until the round has formed."""
        body = {
            "incarnation": f"i-{self.index}",
            "address": f"{self.run_id}-{self.index}.{self.run_id}.train.svc",
            "pid": 1,
            "round": self.round,
            "failure": None,
            "wait": 10,
        }
        request = self.request("POST", "join", body)
        while True:
            answer = await self.joining.call(request)
            if answer.startswith(b'{"members":'):
                self.released_at = time.monotonic()
                own = json.loads(b"{" + answer.rpartition(b"],")[2])
                self.round, self.rank = int(own["round"]), int(own["rank"])
                return
            if not answer.startswith(b'{"state":"waiting"'):
                raise RuntimeError(f"node {self.index} is refused: {answer[:300]!r}")

    async def beat(self) -> None:
        """Send heartbeats until there is something to tell."""
        loop, pause = asyncio.get_running_loop(), INTERVAL_SECONDS * random.uniform(EARLIEST, 1.0)
        while True:
            started = loop.time()
            body = {"incarnation": f"i-{self.index}", "round": self.round, "endpoint": None, "wait": round(pause, 3)}
            raw = await self.beating.call(self.request("POST", "heartbeat", body))
            if raw.startswith(b"HTTP/"):  # a refusal
                return
            answer = json.loads(raw)
            self.beats += 1
            if answer["waiting"] or answer["evicted"] or answer["closed"]:
                if self.told is not None:
                    self.told(self, time.monotonic())
                return
            await asyncio.sleep(max(LEAST_PAUSE_SECONDS, started + pause - loop.time()))


class Dialer:
    """Opens TLS connections to one server, some at a time."""

    def __init__(self, server: Server) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._port = server.port
        self._context = ssl.create_default_context(cafile=server.ca_file)
        self._gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def join(self, node: Node) -> None:
        """Connect a node, and have it join until the round has formed."""
        await self.open(node.joining)
        await node.join()

    async def beat(self, node: Node) -> None:
        """Connect a node, and have it send heartbeats until there is something to tell."""
        await self.open(node.beating)
        await node.beat()

    async def open(self, connection: Connection) -> None:
        """Connect; the server waits for a call for some seconds only."""
        async with self._gate:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, "127.0.0.1", self._port, ssl=self._context, server_hostname="127.0.0.1"
            )


async def until(is_so: Callable[[], object], *, pause: float = 0.05) -> None:
    """Wait for what other tasks or the server bring about; the caller sets the time-out."""
    while not is_so():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(pause)
