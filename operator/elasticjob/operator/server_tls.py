"""TLS for the connections of the rendezvous server, at a cost that a thousand idle connections can have.

asyncio's own TLS gives each connection a buffer of 256 KiB and a timer for its handshake. Here all connections read
through one buffer, which is safe since on a selector loop what is read is handed on before anything else is read. The
protocol above sees the connection from its first moment and so bounds the time of the handshake as well.
"""

import asyncio
import contextlib
import ssl
from typing import Protocol

_RECORD = 16 * 1024
"""Most bytes that one record of TLS holds."""


class Wire(Protocol):
    """What a protocol needs of its transport."""

    def write(self, data: bytes) -> None:
        """Send these bytes, at some time."""

    def close(self) -> None:
        """End when everything is sent."""

    def abort(self) -> None:
        """End at once."""

    def is_closing(self) -> bool:
        """Whether it ends."""


class WireProtocol(Protocol):
    """What is told of a connection."""

    def wired(self, wire: Wire) -> None:
        """It is there. What is written before anything was received may be lost."""

    def data_received(self, data: bytes) -> None:
        """Something was received."""

    def pause_writing(self) -> None:
        """The other end does not take what is sent."""

    def resume_writing(self) -> None:
        """It takes it again."""

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""


class TlsLayer(asyncio.BufferedProtocol):
    """The server's side of TLS on one connection.

    Args:
        above: Gets what is decrypted.
        buffer: What is read goes through it; shared by all connections of one loop.
    """

    __slots__ = ("_above", "_buffer", "_incoming", "_is_open", "_outgoing", "_tls", "_transport")

    def __init__(self, above: WireProtocol, context: ssl.SSLContext, buffer: memoryview) -> None:
        self._above = above
        self._buffer = buffer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._transport: asyncio.Transport | None = None

    # -- as a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._above.wired(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._buffer[:nbytes])
        try:
            if self._is_open or self._shake_hands():
                self._read()
        except ssl.SSLError:
            self.abort()

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._above.connection_lost(exc)

    # -- as a wire

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:
            self.abort()
        self._flush()

    def close(self) -> None:
        if self._is_open:
            with contextlib.suppress(ssl.SSLError):  # the good-bye of the other end is not waited for
                self._tls.unwrap()
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        self._is_open = True
        return True

    def _read(self) -> None:
        while (self._incoming.pending or self._tls.pending()) and not self.is_closing():
            try:
                data = self._tls.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.close()
                return
            self._above.data_received(data)
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())
