"""Servers that fail in the ways that networks do, and a forwarder from the IPv6 loopback address."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import ClassVar


class _Server:
    """A socket that is closed at the end."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()


class ClosedPort(_Server):
    """Refuses connections: the port is taken, but nobody listens."""


class BlackHole(_Server):
    """Loses the packets that would open a connection: its queue is full and never emptied."""

    def __init__(self) -> None:
        super().__init__()
        self._socket.listen(0)
        self._filling = [socket.socket() for _ in range(3)]
        for client in self._filling:
            client.setblocking(False)
            client.connect_ex(self._socket.getsockname())

    def __exit__(self, *exception: object) -> None:
        for client in self._filling:
            client.close()
        super().__exit__(*exception)


class SilentServer(_Server):
    """Accepts connections and says nothing: the kernel does that for a socket that listens."""

    def __init__(self) -> None:
        super().__init__()
        self._socket.listen(64)


class TalkativeServer(_Server):
    """Answers in another language, as a TLS server does to plain HTTP, and hangs up."""

    def __init__(self) -> None:
        super().__init__()
        self._socket.listen(64)
        threading.Thread(target=self._answer, daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        super().__exit__(*exception)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")


class Forwarder:
    """Passes connections from `[::1]` on to a server that only listens on IPv4."""

    _running: ClassVar[list["Forwarder"]] = []

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._socket = socket.socket(socket.AF_INET6)
        self._socket.bind(("::1", 0))
        self._socket.listen(64)
        self.port = int(self._socket.getsockname()[1])
        self._running.append(self)
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    @contextlib.contextmanager
    def all_stopped(cls) -> Iterator[None]:
        """Stop every forwarder at the end."""
        try:
            yield
        finally:
            for forwarder in cls._running:
                forwarder._socket.shutdown(socket.SHUT_RDWR)
                forwarder._socket.close()
            cls._running.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def answering(
    status: int, text: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, list[str]]]:
    """A server that gives every request the same answer, and the list of the requests it got."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            requests.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = text.encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names of the standard library

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
