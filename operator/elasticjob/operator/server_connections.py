"""Bounds what connections may cost: their number, and the time that a request takes to arrive.

An HTTP server that waits for the rest of a request for as long as a client likes can be held up by a few hundred slow
clients. Each connection is therefore watched from outside the HTTP protocol: one sweep a second closes those whose
request has been arriving for too long.
"""

import asyncio

from aiohttp import web

_SWEEP = 1.0
_LEAST_GRACE = 0.01


class _Watched(asyncio.Protocol):
    """Passes everything on to the HTTP protocol, and notes since when a request has been arriving."""

    def __init__(self, inner: asyncio.Protocol, owner: "Connections") -> None:
        self._inner = inner
        self._owner = owner
        self.transport: asyncio.BaseTransport | None = None
        self.arriving_since: float | None = None
        self.is_answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.arriving_since = self._owner.now()
        self._inner.connection_made(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.closed(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.arriving_since is None and not self.is_answering:
            self.arriving_since = self._owner.now()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def close(self) -> None:
        """End the connection at once."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()


class Connections:
    """All connections of one server."""

    def __init__(self, server: web.Server, *, most: int, request_timeout: float) -> None:
        self._server = server
        self._most = most
        self._timeout = request_timeout
        self._open: dict[asyncio.BaseTransport, _Watched] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.refused = 0

    def start(self) -> None:
        """Begin on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._sweep = self._loop.call_later(_SWEEP, self._close_slow)

    async def stop(self, grace: float) -> None:
        """End all connections; those that are being answered get `grace` seconds."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open.values()):
            if not connection.is_answering:
                connection.close()
        # A time-out of 0 means none to the HTTP server.
        await self._server.shutdown(max(grace, _LEAST_GRACE))

    def now(self) -> float:
        """Seconds of the loop's clock."""
        assert self._loop is not None
        return self._loop.time()

    def make(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Watched(self._server(), self)

    def opened(self, connection: _Watched) -> None:
        """A connection is there; one too many is closed at once."""
        assert connection.transport is not None
        self._open[connection.transport] = connection
        if len(self._open) > self._most:
            self.refused += 1
            connection.close()

    def closed(self, connection: _Watched) -> None:
        """A connection is gone."""
        if connection.transport is not None:
            self._open.pop(connection.transport, None)

    def arrived(self, transport: asyncio.BaseTransport | None) -> None:
        """A whole request has arrived."""
        if transport is not None and transport in self._open:
            self._open[transport].arriving_since = None
            self._open[transport].is_answering = True

    def answered(self, transport: asyncio.BaseTransport | None) -> None:
        """The answer is ready; the next request may begin."""
        if transport is not None and transport in self._open:
            self._open[transport].arriving_since = None
            self._open[transport].is_answering = False

    def _close_slow(self) -> None:
        assert self._loop is not None
        limit = self._loop.time() - self._timeout
        for connection in list(self._open.values()):
            if connection.arriving_since is not None and connection.arriving_since < limit:
                connection.close()
        self._sweep = self._loop.call_later(_SWEEP, self._close_slow)
