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
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs

from elasticjob.operator.hosting.host import Host
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.answers import FormedAnswers, encode_heartbeat
from elasticjob.operator.server.auth import Caller
from elasticjob.operator.server.connections import Call, Connections, HangUp, Reply, ServerLimits, raise_open_files
from elasticjob.operator.server.http1 import Head
from elasticjob.rendezvous.coordinator import WaitResult
from elasticjob.rendezvous.protocol import (
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
    ProtocolError,
    dumps,
    parse,
)

log = logging.getLogger(__name__)

MAX_PATH = 1024
_PROTOCOL = PROTOCOL_HEADER.lower()


class Identifies(Protocol):
    """Finds out who calls."""

    def recognize(self, token: str) -> Caller | None:
        """The pod that the token speaks for, None if `identify` has to be asked; `ProtocolError` if there is none."""

    async def identify(self, token: str) -> Caller:
        """The pod that the token speaks for; `ProtocolError` if there is none."""


T = TypeVar("T")


class _Received:
    """One call as it was received. What is read from it is kept, since heartbeats come again and again as they are.

    Everything raises `ProtocolError` if it cannot be read.
    """

    def __init__(self, head: Head, body: bytes) -> None:
        self.head = head
        self._body = body
        self._request: object = None
        self._token: str | None = None
        self._path: tuple[str, tuple[str, ...]] | None = None

    @property
    def token(self) -> str:
        """The caller's bearer token."""
        if self._token is None:
            self._token = _token_of(self.head)
        return self._token

    @property
    def path(self) -> tuple[str, tuple[str, ...]]:
        """The run, and what follows it in the path."""
        if self._path is None:
            self._path = _path_of(self.head)
        return self._path

    @property
    def query(self) -> str:
        return self.head.target.partition("?")[2]

    def read(self, reader: Callable[[object], T]) -> T:
        """What its body says; the reader belongs to the path."""
        if self._request is None:
            self._request = parse(self._body, reader)
        return cast(T, self._request)


_Handler = Callable[[_Received, Caller, Reply], HangUp | None]


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
        self._handlers: dict[tuple[str, str], _Handler] = {
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
            self._read,
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

    def _read(self, head: Head, body: bytes) -> Call:
        return partial(self._answer, _Received(head, body))

    def _answer(self, call: _Received, reply: Reply) -> HangUp | None:
        try:
            caller = self._identifies.recognize(call.token)
            if caller is not None:
                return self._serve(call, caller, reply)
            return _Identification(self._identify(call, reply)).hang_up
        except Exception as error:
            self._refuse(call, reply, error)
            return None

    async def _identify(self, call: _Received, reply: Reply) -> HangUp | None:
        """Like `_answer`, where the API server has to be asked who calls."""
        try:
            return self._serve(call, await self._identifies.identify(call.token), reply)
        except Exception as error:
            self._refuse(call, reply, error)
            return None

    def _serve(self, call: _Received, caller: Caller, reply: Reply) -> HangUp | None:
        run_id, rest = call.path
        self._host.authorize(run_id, namespace=caller.namespace, pod_uid=caller.pod_uid)
        handler = self._handlers.get((call.head.method, rest[-1]))
        if handler is None or len(rest) != (3 if rest[-1] == "endpoint" else 1):
            raise _no_such_call()
        return handler(call, caller, reply)

    def _refuse(self, call: _Received, reply: Reply, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            log.error("%s %s failed", call.head.method, call.head.target, exc_info=error)
            error = ProtocolError(ErrorCode.NOT_READY, "the operator failed to answer")
        reply(self._host.count_refusal(error))

    def _join(self, call: _Received, caller: Caller, reply: Reply) -> HangUp:
        request = call.read(JoinRequest.from_json)

        def answered(result: WaitResult) -> None:
            if isinstance(result, JoinFormed):
                reply(self._formed.encode(result, gzip=call.head.takes_gzip))
            else:
                self._reply(reply, result)

        return self._host.join(call.path[0], caller.pod_uid, request, answered=answered)

    def _heartbeat(self, call: _Received, caller: Caller, reply: Reply) -> HangUp | None:
        request = call.read(HeartbeatRequest.from_json)
        answer = self._host.heartbeat(call.path[0], caller.pod_uid, request, answered=partial(self._reply, reply))
        if isinstance(answer, HeartbeatAnswer):
            reply(encode_heartbeat(answer))
            return None
        return answer

    def _leave(self, call: _Received, caller: Caller, reply: Reply) -> None:
        self._host.leave(call.path[0], caller.pod_uid, call.read(LeaveRequest.from_json))
        reply(b"{}")

    def _publish(self, call: _Received, caller: Caller, reply: Reply) -> None:
        request = call.read(EndpointRequest.from_json)
        self._host.publish(call.path[0], caller.pod_uid, _round_of(call), request)
        reply(b"{}")

    def _endpoint(self, call: _Received, caller: Caller, reply: Reply) -> HangUp:
        round, answered = _round_of(call), partial(self._reply, reply)
        return self._host.endpoint(call.path[0], caller.pod_uid, round, wait=_wait_of(call), answered=answered)

    def _reply(self, reply: Reply, result: WaitResult) -> None:
        """Answer a call that was held."""
        if isinstance(result, HeartbeatAnswer):
            reply(encode_heartbeat(result))
        elif isinstance(result, ProtocolError):
            reply(self._host.count_refusal(result))
        else:
            reply(dumps(result.to_json()))


class _Identification:
    """A call whose caller is being found out; after that, perhaps, a call that is held."""

    def __init__(self, identify: Coroutine[Any, Any, HangUp | None]) -> None:
        self._task = asyncio.get_running_loop().create_task(identify)

    def hang_up(self) -> None:
        """The caller does not wait any more."""
        if not self._task.done():
            self._task.cancel()
        elif not self._task.cancelled() and (hang_up := self._task.result()) is not None:
            hang_up()


def _token_of(head: Head) -> str:
    if head.headers.get(_PROTOCOL, "") != PROTOCOL_VERSION:
        message = f"this operator speaks version {PROTOCOL_VERSION}; name it in the header {PROTOCOL_HEADER}"
        raise ProtocolError(ErrorCode.UNSUPPORTED_PROTOCOL, message)
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise ProtocolError(ErrorCode.UNAUTHENTICATED, "a bearer token is needed")
    return token.strip()


def _path_of(head: Head) -> tuple[str, tuple[str, ...]]:
    path, _, _ = head.target.partition("?")
    parts = path.split("/")
    if len(path) > MAX_PATH or len(parts) < 5 or parts[:3] != ["", "v1", "runs"]:
        raise _no_such_call()
    return parts[3], tuple(parts[4:])


def _round_of(call: _Received) -> int:
    _, rest = call.path
    if len(rest) != 3 or rest[0] != "rounds":
        raise _no_such_call()
    text = rest[1]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_ROUND):
        raise ProtocolError(ErrorCode.INVALID, f"the round must be a number up to {MAX_ROUND}")
    return int(text)


def _wait_of(call: _Received) -> float:
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
