"""A rendezvous server that speaks the wire protocol and decides as little as possible.

A round forms as soon as `wanted` nodes have joined. Identity is the bearer token, which ranks follow. Tests put faults
in front of the next calls: `fail(answer)` answers once with bytes of their choice, `close_connections()` cuts all.
"""

import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.protocol import (
    Closed,
    EndpointRequest,
    ErrorCode,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ProtocolError,
)

Reply = tuple[int, bytes, dict[str, str]]


def refusal(code: ErrorCode, *, closed: Closed | None = None, headers: dict[str, str] | None = None) -> Reply:
    """An answer that refuses a call."""
    error = ProtocolError(code, f"refused by the test: {code.value}", closed=closed)
    return code.http_status, json.dumps(error.to_json()).encode(), headers or {}


class FakeServer(ThreadingHTTPServer):
    """Serves one run on a loopback address."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *, wanted: int = 1, host: str = "127.0.0.1", port: int = 0) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)
        self.changed = threading.Condition()
        self.wanted = wanted
        self.round = 0
        self.members: dict[str, JoinRequest] = {}
        self.joined: dict[str, JoinRequest] = {}
        self.reform = False
        self.closed: Closed | None = None
        self.fenced: set[str] = set()
        self.endpoints: dict[int, dict[str, Any]] = {}
        self.interval = 0.03
        self.faults: deque[Reply | float] = deque()
        self.calls: list[tuple[str, str, str, Any]] = []
        self.connections: set[socket.socket] = set()
        self.opened = 0
        self.tls: ssl.SSLContext | None = None

    @property
    def endpoint(self) -> ServerEndpoint:
        host, port = self.server_address[:2]
        return ServerEndpoint(host=str(host), port=int(port))

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.tls is not None:
            # The thread of the connection shakes hands, with its first read.
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: callers that hang up are part of the tests."""

    def fail(self, *replies: Reply | float) -> None:
        """Answer the next calls with these instead; a number keeps silent for so many seconds."""
        with self.changed:
            self.faults.extend(replies)

    def update(self, **values: Any) -> None:
        """Change the run and wake whoever waits."""
        with self.changed:
            for name, value in values.items():
                setattr(self, name, value)
            self._form()
            self.changed.notify_all()

    def lose(self, identity: str, *, wanted: int | None = None) -> None:
        """The operator notices that a node is gone."""
        with self.changed:
            self.wanted = self.wanted if wanted is None else wanted
            self.members.pop(identity, None)
            self.joined.pop(identity, None)
            self.reform = True
            self._form()
            self.changed.notify_all()

    def close_connections(self) -> None:
        """Cut every connection, like a server that dies."""
        with self.changed:
            for connection in list(self.connections):
                with suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def calls_to(self, path: str) -> list[Any]:
        """Bodies of the calls whose path ends so."""
        with self.changed:
            return [body for _, called, _, body in self.calls if called.endswith(path)]

    def wait_for(self, path: str, count: int, timeout: float = 10.0) -> list[Any]:
        """Wait for a number of calls whose path ends so."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls_to(path)) >= count, timeout), self.calls
            return self.calls_to(path)

    def join(self, identity: str, body: Any) -> dict[str, Any]:
        request = JoinRequest.from_json(body)
        with self.changed:
            known = self.members.get(identity)
            if not (known is not None and known.incarnation == request.incarnation and request.round < self.round):
                self.joined[identity] = request
                self.reform = self.reform or known is not None or len(self.members) < self.wanted
                self._form()
                self.changed.notify_all()
            self._check(identity)
            self.changed.wait_for(lambda: identity not in self.joined or self._refused(identity), request.wait)
            self._check(identity)
            if identity in self.joined:
                counts = {"joined": len(self.joined), "expected": self.wanted, "min": 1}
                return {"state": "waiting", **counts, "deadlineSeconds": None, "message": "the test waits"}
            return self._formed(identity)

    def heartbeat(self, identity: str, body: Any) -> dict[str, Any]:
        request = HeartbeatRequest.from_json(body)
        with self.changed:
            before = self._news(identity, request)
            self.changed.wait_for(lambda: self._news(identity, request) != before, min(body["wait"], self.interval))
            self._check(identity, closed=False)
            return self._news(identity, request)

    def publish(self, number: int, body: Any) -> dict[str, Any]:
        with self.changed:
            if number != self.round or self.reform:
                raise ProtocolError(ErrorCode.STALE_ROUND, "not the newest round")
            self.endpoints[number] = EndpointRequest.from_json(body).endpoint.to_json()
            self.changed.notify_all()
        return {}

    def fetch(self, number: int, wait: float) -> dict[str, Any]:
        with self.changed:
            self.changed.wait_for(lambda: number in self.endpoints or number != self.round or self.reform, wait)
            if number != self.round or self.reform:
                raise ProtocolError(ErrorCode.STALE_ROUND, "not the newest round")
            if number not in self.endpoints:
                raise ProtocolError(ErrorCode.NOT_READY, "rank 0 has published nothing")
            return self.endpoints[number]

    def leave(self, identity: str, body: Any) -> dict[str, Any]:
        LeaveRequest.from_json(body)
        return {}

    def _news(self, identity: str, request: HeartbeatRequest) -> dict[str, Any]:
        return {
            "round": self.round,
            "waiting": int(self.reform),
            "closed": None if self.closed is None else self.closed.to_json(),
            "evicted": identity not in self.members or request.round < self.round,
            "intervalSeconds": self.interval,
        }

    def _form(self) -> None:
        if self.joined and len(self.joined) >= self.wanted:
            self.round += 1
            self.members, self.joined = dict(sorted(self.joined.items())), {}
            self.reform = False

    def _refused(self, identity: str) -> bool:
        return self.closed is not None or identity in self.fenced

    def _check(self, identity: str, *, closed: bool = True) -> None:
        if identity in self.fenced:
            raise ProtocolError(ErrorCode.FENCED, "replaced")
        if closed and self.closed is not None:
            raise ProtocolError(ErrorCode.CLOSED, "the run is closed", closed=self.closed)

    def _formed(self, identity: str) -> dict[str, Any]:
        members = [
            {"rank": rank, "index": rank, "pod": name, "address": request.address}
            for rank, (name, request) in enumerate(self.members.items())
        ]
        rank = list(self.members).index(identity)
        return {
            "state": "formed",
            "round": self.round,
            "rank": rank,
            "worldSize": len(members),
            "members": members,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def setup(self) -> None:
        super().setup()
        with self.server.changed:
            self.server.connections.add(self.connection)
            self.server.opened += 1

    def finish(self) -> None:
        with self.server.changed:
            self.server.connections.discard(self.connection)
        super().finish()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        identity = self.headers.get("Authorization", "Bearer ").removeprefix("Bearer ")
        path, _, query = self.path.partition("?")
        with self.server.changed:
            self.server.calls.append((self.command, path, identity, body))
            self.server.changed.notify_all()
            fault = self.server.faults.popleft() if self.server.faults else None
        if isinstance(fault, float):
            time.sleep(fault)
            self.close_connection = True
            return
        self._send(*(fault or self._decide(path, query, identity, body)))

    def _decide(self, path: str, query: str, identity: str, body: Any) -> Reply:
        try:
            return 200, json.dumps(self._route(path, query, identity, body)).encode(), {}
        except ProtocolError as error:
            return error.code.http_status, json.dumps(error.to_json()).encode(), {}

    def _route(self, path: str, query: str, identity: str, body: Any) -> dict[str, Any]:
        last = path.rsplit("/", 1)[-1]
        if last == "join":
            return self.server.join(identity, body)
        if last == "heartbeat":
            return self.server.heartbeat(identity, body)
        if last == "leave":
            return self.server.leave(identity, body)
        number = int(path.split("/")[-2])
        if self.command == "PUT":
            return self.server.publish(number, body)
        return self.server.fetch(number, float(query.removeprefix("wait=")))

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(server: FakeServer) -> Iterator[FakeServer]:
    """Serve in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        server.update(closed=Closed(reason="Deleted", message="the test is over"))
        server.close_connections()
        thread.join()
