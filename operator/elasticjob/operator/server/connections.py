"""The connections of the rendezvous server: one HTTP call at a time on each, and a bound on everything they may cost.

A thousand nodes hold a connection each and speak every few seconds, so a connection is small and a call costs little:
no streams, no timers and no tasks. One sweep a second closes whatever has lasted too long: a request that does not
arrive, an answer that is not taken, a connection without a call.
"""

import asyncio
import resource
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import formatdate
from enum import Enum
from typing import cast

from elasticjob.operator.metrics import Cut, Metrics
from elasticjob.operator.server.answers import Gzipped
from elasticjob.operator.server.http1 import END_OF_HEAD, MAX_HEAD, Head, answer_bytes, read_head
from elasticjob.operator.server.tls import TlsLayer, Wire
from elasticjob.operator.waiting import happens
from elasticjob.rendezvous.protocol import MAX_REQUEST_BYTES, ErrorCode, ProtocolError, dumps

_SWEEP = 1.0
_BUFFER = 64 * 1024
_LINGER = 1.0
"""Seconds for which a refused request may go on arriving, so that its sender can read why."""
_MAX_KNOWN = 8 * 1024
"""Most bytes of a request that is remembered; anybody may send requests, and connections are many."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
RETRY_AFTER = {
    ErrorCode.NOT_READY: "1",
    ErrorCode.UNKNOWN_RUN: "1",
    ErrorCode.UNKNOWN_NODE: "1",
    ErrorCode.OVERLOADED: "2",
}

RESERVED_FILES = 256
"""Open files that are left to the rest of the process."""

Reply = Callable[[bytes | Gzipped | ProtocolError], None]
"""Takes the answer to a call, once: the body of status 200, or the refusal."""
HangUp = Callable[[], None]
"""Told that a caller does not wait any more; does nothing if it is answered."""
Call = Callable[[Reply], HangUp | None]
"""Makes a call that was received: it is answered at once, or later."""


class _Phase(Enum):
    """What a connection is doing."""

    SECURING = "TLS is set up"
    IDLE = "no call"
    ARRIVING = "a request arrives"
    ANSWERING = "a call is being answered"
    WRITING = "the client does not take its answer"
    CLOSING = "its last answer is sent"
    ENDING = "refused for good; what still arrives is dropped"


_CAUSES = {
    _Phase.SECURING: Cut.HANDSHAKE_TIMEOUT,
    _Phase.IDLE: Cut.IDLE_TIMEOUT,
    _Phase.ARRIVING: Cut.REQUEST_TIMEOUT,
    _Phase.WRITING: Cut.ANSWER_TIMEOUT,
    _Phase.CLOSING: Cut.ANSWER_TIMEOUT,
}


class Connection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_buffer",
        "_closes",
        "_hang_up",
        "_head",
        "_is_full",
        "_known",
        "_owner",
        "_phase",
        "_wire",
        "overdue_at",
    )

    def __init__(self, owner: "Connections") -> None:
        self._owner = owner
        self._wire: Wire | None = None
        self._buffer = b""
        self._head: Head | None = None
        self._known: tuple[bytes, Head, Call] | None = None
        """The last request that arrived in one piece: heartbeats are sent again and again as they are."""
        self._enter(_Phase.SECURING)
        self._is_full = False
        self._closes = False
        self._hang_up: HangUp | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.wired(cast(asyncio.Transport, transport))
        self.secured()

    def wired(self, wire: Wire) -> None:
        """The connection is there; if by TLS, the handshake is to come."""
        self._wire = wire
        self._owner.opened(self)

    def secured(self) -> None:
        """What is written from now on arrives. The time for the first request runs on."""
        self._phase = _Phase.ARRIVING

    def garbled(self) -> None:
        if self._phase not in (_Phase.ENDING, _Phase.CLOSING):
            self._cut(Cut.TLS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._phase is _Phase.ARRIVING and (self._buffer or self._head is not None):
            self._owner.count_cut(Cut.BROKEN)
        self._wire = None
        self._buffer = b""
        hang_up, self._hang_up = self._hang_up, None
        if hang_up is not None:
            hang_up()
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._phase in (_Phase.ENDING, _Phase.CLOSING):
            return
        self._buffer = self._buffer + data if self._buffer else data
        if self._phase in (_Phase.ANSWERING, _Phase.WRITING):
            if len(self._buffer) > MAX_HEAD + MAX_REQUEST_BYTES:
                self._cut(Cut.FLOOD)
            return
        if self._phase is _Phase.IDLE:
            self._enter(_Phase.ARRIVING)
        self._take_request()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._phase is _Phase.WRITING:
            self._go_on()

    @property
    def is_answering(self) -> bool:
        """Whether its client is owed an answer."""
        return self._phase is _Phase.ANSWERING

    def abort(self) -> None:
        """End the connection at once."""
        if self._wire is not None:
            self._wire.abort()

    def expire(self) -> None:
        """The time for what it does is over. A client that has not sent its request is told so, if it can be."""
        if self._phase is _Phase.ARRIVING:
            self._owner.count_cut(Cut.REQUEST_TIMEOUT)
            seconds = self._owner.limits.request_timeout
            message = f"the request has not arrived within {seconds:g} seconds"
            self._refuse(ProtocolError(ErrorCode.REQUEST_TIMEOUT, message))
        elif self._phase in _CAUSES:
            self._cut(_CAUSES[self._phase])
        else:
            self.abort()

    def _cut(self, cause: Cut) -> None:
        self._owner.count_cut(cause)
        self._phase, self._buffer = _Phase.ENDING, b""
        self.abort()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self.overdue_at = self._owner.now() + self._owner.allowed[phase]

    def _take_request(self) -> None:
        """Begin to answer if a whole request has arrived."""
        received = self._buffer if self._head is None else b""
        if self._known is not None and received == self._known[0]:
            self._buffer = b""
            self._begin(self._known[1], self._known[2])
            return
        try:
            if self._head is None and not self._take_head():
                return
        except ProtocolError as refusal:
            self._refuse(refusal)
            return
        head = self._head
        assert head is not None
        if len(self._buffer) < head.length:
            return
        body, self._buffer = self._buffer[: head.length], self._buffer[head.length :]
        self._head = None
        call = self._owner.reads(head, body)
        is_whole = bool(received) and not self._buffer
        self._known = (received, head, call) if is_whole and len(received) <= _MAX_KNOWN else None
        self._begin(head, call)

    def _take_head(self) -> bool:
        block, end, rest = self._buffer.partition(END_OF_HEAD)
        if len(block) > MAX_HEAD:
            raise ProtocolError(ErrorCode.INVALID, f"a request may have {MAX_HEAD} bytes before its body")
        if not end:
            return False
        self._head, self._buffer = read_head(block.lstrip(b"\r\n")), rest
        if self._head.expects_continue and len(rest) < self._head.length and self._wire is not None:
            self._wire.write(_CONTINUE)
        return True

    def _begin(self, head: Head, call: Call) -> None:
        self._enter(_Phase.ANSWERING)
        self._closes = not head.keeps_alive
        hang_up = call(self._reply)
        if self._phase is _Phase.ANSWERING:
            self._hang_up = hang_up

    def _reply(self, content: bytes | Gzipped | ProtocolError) -> None:
        self._hang_up = None
        wire, owner = self._wire, self._owner
        if wire is None or wire.is_closing():
            return
        status, retry_after = 200, None
        if isinstance(content, ProtocolError):
            status, retry_after = content.code.http_status, RETRY_AFTER.get(content.code)
            content = dumps(content.to_json())
        closes = self._closes or owner.is_ending
        wire.write(answer_bytes(status, content, date=owner.date, retry_after=retry_after, closes=closes))
        if closes:
            self._enter(_Phase.CLOSING)
            wire.close()
        elif self._is_full:
            self._enter(_Phase.WRITING)
        else:
            self._go_on()
        owner.answered.set()

    def _go_on(self) -> None:
        """The last call is answered; the next request may have arrived already."""
        self._enter(_Phase.ARRIVING if self._buffer else _Phase.IDLE)
        if self._buffer:
            # In a turn of its own: requests that arrived together must not be answered one within the other.
            self._owner.loop.call_soon(self._take_request_if_any)

    def _take_request_if_any(self) -> None:
        if self._phase is _Phase.ARRIVING and self._wire is not None:
            self._take_request()

    def _refuse(self, refusal: ProtocolError) -> None:
        """Answer what cannot be understood. Then drop what still arrives: to close at once could lose the answer."""
        self._enter(_Phase.ENDING)
        self._buffer = b""
        if self._wire is not None:
            content = dumps(refusal.to_json())
            status = refusal.code.http_status
            self._wire.write(answer_bytes(status, content, date=self._owner.date, closes=True))
            self._owner.refused_requests(refusal)


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """What the server bears.

    Args:
        connections: How many at the same time; further ones are closed at once.
        request_timeout: Seconds within which a request must have arrived, from its first byte or the start of the
            connection; the handshake of TLS included.
        write_timeout: Seconds within which a client must have taken an answer.
        idle_timeout: Seconds after which a connection without a request is closed.
    """

    connections: int = 16_384
    request_timeout: float = 10.0
    write_timeout: float = 30.0
    idle_timeout: float = 75.0

    def within(self, open_files: int) -> "ServerLimits":
        """These limits with no more connections than so many open files allow; the rest of the process needs some."""
        return replace(self, connections=max(1, min(self.connections, open_files - RESERVED_FILES)))


def raise_open_files() -> int:
    """Have this process open as many files as it may have at most, and tell how many that is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return sys.maxsize if most == resource.RLIM_INFINITY else most


class Connections:
    """All connections of one server.

    Args:
        reads: Makes a call of what was received; the call is made again if the same is received again.
        refused: Told of each refusal that is no answer to a call.
    """

    def __init__(
        self,
        reads: Callable[[Head, bytes], Call],
        *,
        limits: ServerLimits,
        ssl_context: ssl.SSLContext | None,
        refused: Callable[[ProtocolError], object],
        metrics: Metrics,
    ) -> None:
        self.reads = reads
        self.limits = limits
        self.allowed = {
            _Phase.SECURING: limits.request_timeout,
            _Phase.IDLE: limits.idle_timeout,
            _Phase.ARRIVING: limits.request_timeout,
            _Phase.ANSWERING: float("inf"),
            _Phase.WRITING: limits.write_timeout,
            _Phase.CLOSING: limits.write_timeout,
            _Phase.ENDING: _LINGER,
        }
        """For how many seconds a connection may do what it does."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.date = formatdate(usegmt=True)
        self.is_ending = False
        self.answered = asyncio.Event()
        """Set whenever a call is answered, or its connection is gone."""
        self.refused_requests = refused
        self._ssl_context = ssl_context
        self._buffer = memoryview(bytearray(_BUFFER))
        self._open: set[Connection] = set()
        self._metrics = metrics
        metrics.connections.set_function(lambda: len(self._open))
        self._sweep = self.loop.call_later(_SWEEP, self._look)

    def make(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        connection = Connection(self)
        return connection if self._ssl_context is None else TlsLayer(connection, self._ssl_context, self._buffer)

    async def stop(self, grace: float) -> None:
        """End all connections; those that are being answered get `grace` seconds."""
        self._sweep.cancel()
        self.is_ending = True
        for connection in list(self._open):
            if not connection.is_answering:
                connection.abort()
        ends_at = self.now() + grace
        while any(connection.is_answering for connection in self._open) and self.now() < ends_at:
            self.answered.clear()
            await happens(self.answered, within=ends_at - self.now())
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        """A connection is there; one too many is closed at once."""
        self._open.add(connection)
        if len(self._open) > self.limits.connections or self.is_ending:
            self._metrics.connections_refused.inc()
            connection.abort()

    def count_cut(self, cause: Cut) -> None:
        """A connection is cut, or was."""
        self._metrics.connections_cut.labels(cause.value).inc()

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        self.answered.set()

    def _look(self) -> None:
        now = self.loop.time()
        self.date = formatdate(usegmt=True)
        for connection in [each for each in self._open if each.overdue_at < now]:
            connection.expire()
        self._sweep = self.loop.call_later(_SWEEP, self._look)
