"""TLS for the connections of the rendezvous server, at a cost that a thousand idle connections can have.

asyncio's own TLS gives each connection a buffer of 256 KiB and a timer for its handshake. Here all connections read
through one buffer, which is safe since the loop hands on what it has read before it reads anything else. The
protocol above sees the connection from its first moment and so bounds the time of the handshake as well.
"""

import asyncio
import contextlib
import ssl
from typing import Protocol, cast

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
        """It is there. What is written before it is secured may be lost."""

    def secured(self) -> None:
        """The handshake is over."""

    def garbled(self) -> None:
        """What was received is no TLS, or the other end gave up in the handshake; the connection is to be cut."""

    def data_received(self, data: bytes) -> None:
        """Something was received."""

    def pause_writing(self) -> None:
        """The other end does not take what is sent."""

    def resume_writing(self) -> None:
        """It takes it again."""

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""


class _Session:
    """What OpenSSL keeps of one connection."""

    __slots__ = ("incoming", "outgoing", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)


class TlsLayer(asyncio.BufferedProtocol):
    """The server's side of TLS on one connection. Until the client has sent something, it costs next to nothing.

    Args:
        above: Gets what is decrypted.
        buffer: What is read goes through it; shared by all connections of one loop.
    """

    __slots__ = ("_above", "_buffer", "_context", "_is_open", "_session", "_transport")

    def __init__(self, above: WireProtocol, context: ssl.SSLContext, buffer: memoryview) -> None:
        self._above = above
        self._buffer = buffer
        self._context = context
        self._session: _Session | None = None
        self._is_open = False
        self._transport: asyncio.Transport | None = None

    # -- as a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self._above.wired(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        session = self._session
        if session is None:
            session = self._session = _Session(self._context)
        session.incoming.write(self._buffer[:nbytes])
        try:
            if self._is_open or self._shake_hands(session):
                self._read(session)
        except ssl.SSLError:
            self._above.garbled()

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session is not None and not self._is_open:
            self._above.garbled()
        self._above.connection_lost(exc)

    # -- as a wire

    def write(self, data: bytes) -> None:
        session = self._session
        if session is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[session.tls.write(rest) :]
        except ssl.SSLError:
            self.abort()
        self._flush(session)

    def close(self) -> None:
        session = self._session
        if session is not None and self._is_open:
            with contextlib.suppress(ssl.SSLError):  # the good-bye of the other end is not waited for
                session.tls.unwrap()
            self._flush(session)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _shake_hands(self, session: _Session) -> bool:
        try:
            session.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush(session)
        self._is_open = True
        self._above.secured()
        return True

    def _read(self, session: _Session) -> None:
        while (session.incoming.pending or session.tls.pending()) and not self.is_closing():
            try:
                data = session.tls.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.close()
                return
            self._above.data_received(data)
        self._flush(session)

    def _flush(self, session: _Session) -> None:
        if session.outgoing.pending and self._transport is not None:
            self._transport.write(session.outgoing.read())
