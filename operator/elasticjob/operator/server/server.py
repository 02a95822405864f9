"""The HTTP face of the hosted rendezvous: reads calls, finds out who calls, and has the host answer.

`docs/protocol.md` describes the calls. Nothing is decided here, and no general web server is used: nearly all calls are
heartbeats of nodes that have nothing to be told, and the operator is to spend next to nothing on each. Whatever a
client does, it costs little: bodies, header sizes, connections, held calls and the time for a request to arrive are
bounded, and every refusal is one typed JSON answer.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs

from elasticjob.operator.hosting.host import Host
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.answers import FormedAnswers, Gzipped, encode_heartbeat
from elasticjob.operator.server.auth import Caller
from elasticjob.operator.server.connections import Connections, ServerLimits, raise_open_files
from elasticjob.operator.server.http1 import Head
from elasticjob.rendezvous.protocol import (
    MAX_ROUND,
    MAX_WAIT_SECONDS,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    EndpointRequest,
    ErrorCode,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    LeaveRequest,
    ProtocolError,
    dumps,
    parse,
)

log = logging.getLogger(__name__)

MAX_PATH = 1024
_PROTOCOL = PROTOCOL_HEADER.lower()


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
    takes_gzip: bool


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
        metrics: Metrics | None = None,
    ) -> None:
        self._host = host
        self._identifies = identifies
        self._address = address
        self._port = port
        self._ssl_context = ssl_context
        self._limits = limits or ServerLimits()
        self._metrics = metrics or Metrics()
        self._connections: Connections | None = None
        self._listener: asyncio.Server | None = None
        self._handlers: dict[tuple[str, str], Callable[[_Call], Awaitable[bytes | Gzipped]]] = {
            ("POST", "join"): self._join,
            ("POST", "heartbeat"): self._heartbeat,
            ("POST", "leave"): self._leave,
            ("PUT", "endpoint"): self._publish,
            ("GET", "endpoint"): self._endpoint,
        }
        self._formed = FormedAnswers()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begin to listen."""
        self._connections = Connections(
            self._answer,
            limits=self._limits.within(raise_open_files()),
            ssl_context=self._ssl_context,
            refused=self._host.count_refusal,
            metrics=self._metrics,
        )
        self._listener = await asyncio.get_running_loop().create_server(
            self._connections.make, sock=_listening_socket(self._address, self._port), backlog=4096
        )

    async def stop(self, *, grace: float = 1.0) -> None:
        """Stop listening and end all connections; answers under way get `grace` seconds, held calls end at once."""
        if self._listener is not None:
            self._listener.close()
        self._host.release()
        if self._connections is not None:
            await self._connections.stop(grace)

    async def _answer(self, head: Head, body: bytes) -> bytes | Gzipped:
        try:
            call = await self._read(head, body)
            return await self._handler(call)(call)
        except ProtocolError as refusal:
            self._host.count_refusal(refusal)
            raise
        except Exception as error:
            log.exception("%s %s failed", head.method, head.target)
            raise ProtocolError(ErrorCode.NOT_READY, "the operator failed to answer") from error

    def _handler(self, call: _Call) -> Callable[[_Call], Awaitable[bytes | Gzipped]]:
        handler = self._handlers.get((call.method, call.rest[-1]))
        if handler is None or len(call.rest) not in (1, 3):
            raise _no_such_call()
        return handler

    async def _read(self, head: Head, body: bytes) -> _Call:
        """Find out who makes which call."""
        if head.headers.get(_PROTOCOL, "") != PROTOCOL_VERSION:
            message = f"this operator speaks version {PROTOCOL_VERSION}; name it in the header {PROTOCOL_HEADER}"
            raise ProtocolError(ErrorCode.UNSUPPORTED_PROTOCOL, message)
        scheme, _, token = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise ProtocolError(ErrorCode.UNAUTHENTICATED, "a bearer token is needed")
        caller = await self._identifies.identify(token.strip())
        path, _, query = head.target.partition("?")
        parts = path.split("/")
        if len(path) > MAX_PATH or len(parts) < 5 or parts[:3] != ["", "v1", "runs"]:
            raise _no_such_call()
        self._host.authorize(parts[3], namespace=caller.namespace, pod_uid=caller.pod_uid)
        return _Call(
            caller=caller,
            run_id=parts[3],
            method=head.method,
            rest=tuple(parts[4:]),
            query=query,
            body=body,
            takes_gzip=head.takes_gzip,
        )

    async def _join(self, call: _Call) -> bytes | Gzipped:
        answer = await self._host.join(call.run_id, call.caller.pod_uid, parse(call.body, JoinRequest.from_json))
        if isinstance(answer, JoinFormed):
            return self._formed.encode(answer, gzip=call.takes_gzip)
        return dumps(answer.to_json())

    async def _heartbeat(self, call: _Call) -> bytes:
        request = parse(call.body, HeartbeatRequest.from_json)
        return encode_heartbeat(await self._host.heartbeat(call.run_id, call.caller.pod_uid, request))

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


def _round_of(call: _Call) -> int:
    if len(call.rest) != 3 or call.rest[0] != "rounds":
        raise _no_such_call()
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


def _no_such_call() -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID, "there is no such call")


def _listening_socket(address: str | None, port: int) -> socket.socket:
    """A socket for one address, or for all addresses of both families where the machine has IPv6."""
    if address is not None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=4096)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    return socket.create_server(("", port), backlog=4096)
