"""The HTTP face of the hosted rendezvous: reads calls, finds out who calls, and has the host answer.

`docs/protocol.md` describes the calls. Nothing is decided here. Whatever a client does, it costs little: bodies, header
sizes, connections, held calls and the time for a request to arrive are bounded, and every refusal is one typed JSON
answer.
"""

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from elasticjob.operator.auth import Caller
from elasticjob.operator.host import Host
from elasticjob.operator.server_connections import Connections
from elasticjob.rendezvous.protocol import (
    MAX_REQUEST_BYTES,
    MAX_ROUND,
    MAX_WAIT_SECONDS,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    EndpointRequest,
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    LeaveRequest,
    Member,
    ProtocolError,
    dumps,
    parse,
)

log = logging.getLogger(__name__)

RETRY_AFTER = {
    ErrorCode.NOT_READY: "1",
    ErrorCode.UNKNOWN_RUN: "1",
    ErrorCode.UNKNOWN_NODE: "1",
    ErrorCode.OVERLOADED: "2",
}
MAX_PATH = 1024
_CACHED_ROUNDS = 64


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """What the server bears.

    Args:
        connections: How many at the same time; further ones are closed at once.
        request_timeout: Seconds within which a request must have arrived, from its first byte or the start of the
            connection.
        idle_timeout: Seconds after which a connection without a request is closed.
    """

    connections: int = 16_384
    request_timeout: float = 10.0
    idle_timeout: float = 75.0


class Identifies(Protocol):
    """Finds out who calls."""

    async def identify(self, token: str) -> Caller:
        """The pod that the token speaks for; `ProtocolError` if there is none."""


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call, with all that is in its address. `rest` is what follows the run in the path."""

    caller: Caller
    run_id: str
    method: str
    rest: tuple[str, ...]
    query: str
    body: bytes


class RendezvousHttpServer:
    """Serves one host.

    Args:
        port: Port to listen on, 0 for a free one.
        address: Address to listen on; None for all, of IPv6 and IPv4.
        ssl_context: Serves by TLS if given.
    """

    def __init__(
        self,
        host: Host,
        identifies: Identifies,
        *,
        port: int,
        address: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._host = host
        self._identifies = identifies
        self._address = address
        self._port = port
        self._ssl_context = ssl_context
        self._limits = limits or ServerLimits()
        self._connections: Connections | None = None
        self._listener: asyncio.Server | None = None
        self._handlers: dict[str, Callable[[_Call], Awaitable[bytes]]] = {
            "POST join": self._join,
            "POST heartbeat": self._heartbeat,
            "POST leave": self._leave,
            "PUT endpoint": self._publish,
            "GET endpoint": self._endpoint,
        }
        self._encoded: dict[int, tuple[tuple[Member, ...], bytes]] = {}

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begin to listen."""
        web_server = web.Server(
            self._answer,
            request_factory=_request,
            handler_cancellation=True,
            keepalive_timeout=self._limits.idle_timeout,
            lingering_time=1.0,
            auto_decompress=False,
            access_log=None,
        )
        self._connections = Connections(
            web_server, most=self._limits.connections, request_timeout=self._limits.request_timeout
        )
        self._connections.start()
        tls: dict[str, Any] = (
            {} if self._ssl_context is None else {"ssl_handshake_timeout": self._limits.request_timeout}
        )
        self._listener = await asyncio.get_running_loop().create_server(
            self._connections.make,
            sock=_listening_socket(self._address, self._port),
            ssl=self._ssl_context,
            backlog=4096,
            **tls,
        )

    async def stop(self, *, grace: float = 1.0) -> None:
        """Stop listening and end all connections; answers under way get `grace` seconds, held calls end at once."""
        if self._listener is not None:
            self._listener.close()
        self._host.release()
        if self._connections is not None:
            await self._connections.stop(grace)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            call = await self._read(request)
            return _response(200, await self._handler(call)(call))
        except ProtocolError as refusal:
            return _refusal(refusal)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return _refusal(ProtocolError(ErrorCode.NOT_READY, "the operator failed to answer"))
        finally:
            if self._connections is not None:
                self._connections.answered(request.transport)

    def _handler(self, call: _Call) -> Callable[[_Call], Awaitable[bytes]]:
        handler = self._handlers.get(f"{call.method} {call.rest[-1]}")
        if handler is None or len(call.rest) not in (1, 3):
            raise ProtocolError(ErrorCode.INVALID, "there is no such call")
        return handler

    async def _read(self, request: web.BaseRequest) -> _Call:
        """Read one call to its end and find out who makes it."""
        if request.headers.get(PROTOCOL_HEADER, "") != PROTOCOL_VERSION:
            message = f"this operator speaks version {PROTOCOL_VERSION}; name it in the header {PROTOCOL_HEADER}"
            raise ProtocolError(ErrorCode.UNSUPPORTED_PROTOCOL, message)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise ProtocolError(ErrorCode.TOO_LARGE, f"a body may have {MAX_REQUEST_BYTES} bytes") from error
        if self._connections is not None:
            self._connections.arrived(request.transport)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise ProtocolError(ErrorCode.UNAUTHENTICATED, "a bearer token is needed")
        caller = await self._identifies.identify(token.strip())
        path, _, query = request.raw_path.partition("?")
        parts = path.split("/")
        if len(path) > MAX_PATH or len(parts) < 5 or parts[:3] != ["", "v1", "runs"]:
            raise ProtocolError(ErrorCode.INVALID, "there is no such call")
        self._host.authorize(parts[3], namespace=caller.namespace, pod_uid=caller.pod_uid)
        return _Call(
            caller=caller, run_id=parts[3], method=request.method, rest=tuple(parts[4:]), query=query, body=body
        )

    async def _join(self, call: _Call) -> bytes:
        answer = await self._host.join(call.run_id, call.caller.pod_uid, parse(call.body, JoinRequest.from_json))
        return self._encode_formed(answer) if isinstance(answer, JoinFormed) else dumps(answer.to_json())

    async def _heartbeat(self, call: _Call) -> bytes:
        request = parse(call.body, HeartbeatRequest.from_json)
        return _encode_heartbeat(await self._host.heartbeat(call.run_id, call.caller.pod_uid, request))

    async def _leave(self, call: _Call) -> bytes:
        self._host.leave(call.run_id, call.caller.pod_uid, parse(call.body, LeaveRequest.from_json))
        return b"{}"

    async def _publish(self, call: _Call) -> bytes:
        request = parse(call.body, EndpointRequest.from_json)
        self._host.publish(call.run_id, call.caller.pod_uid, _round_of(call), request)
        return b"{}"

    async def _endpoint(self, call: _Call) -> bytes:
        wait = _wait_of(call)
        endpoint = await self._host.endpoint(call.run_id, call.caller.pod_uid, _round_of(call), wait=wait)
        return dumps(endpoint.to_json())

    def _encode_formed(self, answer: JoinFormed) -> bytes:
        """The members are the same for all of a round, so they are encoded once."""
        known = self._encoded.get(id(answer.members))
        if known is None or known[0] is not answer.members:
            if len(self._encoded) >= _CACHED_ROUNDS:
                self._encoded.clear()
            members = dumps({"members": [member.to_json() for member in answer.members]})
            known = self._encoded[id(answer.members)] = (answer.members, members[1:])
        head = f'{{"state":"formed","round":{answer.round},"rank":{answer.rank},"worldSize":{answer.world_size},'
        return head.encode() + known[1]


@functools.lru_cache(maxsize=1024)
def _encode_heartbeat(answer: HeartbeatAnswer) -> bytes:
    """Nearly all members of a run get the same answer, again and again."""
    return dumps(answer.to_json())


def _round_of(call: _Call) -> int:
    if len(call.rest) != 3 or call.rest[0] != "rounds":
        raise ProtocolError(ErrorCode.INVALID, "there is no such call")
    text = call.rest[1]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_ROUND):
        raise ProtocolError(ErrorCode.INVALID, f"the round must be a number up to {MAX_ROUND}")
    return int(text)


def _wait_of(call: _Call) -> float:
    text = parse_qs(call.query).get("wait", ["20"])[-1]
    with contextlib.suppress(ValueError):
        if 0.0 <= float(text) <= MAX_WAIT_SECONDS:
            return float(text)
    raise ProtocolError(ErrorCode.INVALID, f"wait must be from 0 to {MAX_WAIT_SECONDS:g} seconds")


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _refusal(refusal: ProtocolError) -> web.Response:
    retry_after = RETRY_AFTER.get(refusal.code)
    headers = {"Retry-After": retry_after} if retry_after else None
    return _response(refusal.code.http_status, dumps(refusal.to_json()), headers)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_REQUEST_BYTES)


def _listening_socket(address: str | None, port: int) -> socket.socket:
    """A socket for one address, or for all addresses of both families where the machine has IPv6."""
    if address is not None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=4096)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    return socket.create_server(("", port), backlog=4096)
