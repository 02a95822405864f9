"""A way to a server on which what one client sends can be held back, as on a network that is slow for it alone.

Requests of everybody else pass. What was held arrives when the test says so, whatever has become of its sender.
"""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.cluster.processes import wait_until

_CHUNK = 65536
_ANSWER_SECONDS = 30.0


class SlowWay:
    """Passes connections on; make it with `slow_way`."""

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self._listener = listener
        self._target = target
        self._guard = threading.Lock()
        self._client: str | None = None
        self._held: dict[socket.socket, bytes] = defaultdict(bytes)
        self._answered: set[socket.socket] = set()
        self._orphaned: set[socket.socket] = set()
        """Ways to the server whose clients have hung up while something of theirs was held."""

    @property
    def endpoint(self) -> str:
        """Where it listens, as host:port."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @property
    def held(self) -> bytes:
        """What has been held back so far."""
        with self._guard:
            return b"".join(self._held.values())

    def hold(self, client: str) -> None:
        """From now on, hold back what comes from this address."""
        with self._guard:
            self._client = client

    def deliver(self) -> None:
        """Let everything that was held arrive, and return when the server has answered it."""
        with self._guard:
            self._client = None
            self._answered.clear()
            waiting = set(self._held)
            for server, data in self._held.items():
                server.sendall(data)
            self._held.clear()
        wait_until(lambda: waiting <= self._answered, what="answers to what was held", timeout=_ANSWER_SECONDS)
        with self._guard:
            for server in self._orphaned:
                server.close()
            self._orphaned.clear()

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, (address, _) = self._listener.accept()
                server = socket.create_connection(self._target)
                for work in (self._send, self._answer):
                    threading.Thread(target=work, args=(client, server, address), daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket, address: str) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                with self._guard:
                    if address == self._client:
                        self._held[server] += data
                    else:
                        server.sendall(data)
        with self._guard:
            if server in self._held:
                self._orphaned.add(server)
            else:
                server.close()

    def _answer(self, client: socket.socket, server: socket.socket, _: str) -> None:
        with suppress(OSError), client:
            while data := server.recv(_CHUNK):
                self._answered.add(server)
                client.sendall(data)


@contextmanager
def slow_way(host: str, target: tuple[str, int]) -> Iterator[SlowWay]:
    """A way to `target` that begins at a free port of `host`."""
    with socket.create_server((host, 0)) as listener:
        way = SlowWay(listener, target)
        threading.Thread(target=way.serve, daemon=True).start()
        try:
            yield way
        finally:
            # Closing alone does not end a call that waits for the next connection.
            listener.shutdown(socket.SHUT_RDWR)
