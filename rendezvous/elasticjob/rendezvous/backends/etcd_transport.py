"""Connections to an etcd server that need not be honest: what an answer may cost is known before it is asked for.

The time-out of a request is for all of it, and not for each read: a server that sends one byte at a time gets no more
time than one that sends nothing. An answer has at most `MAX_ANSWER_BYTES` as it comes over the wire, heads included,
and at most `MAX_ANSWER_PARTS` of what makes values of JSON; it is never compressed. What does not keep to this ends
with the connection, as an `OSError` that urllib3 wraps.

Imported only when a client is made, since workers may have no urllib3.
"""

import http.client
import io
import socket
import time
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from elasticjob.rendezvous.deadline import remaining

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_ANSWER_BYTES = 3 * 1024**2
"""The greatest state is 1,000,000 bytes, 1.33 MB in base64, and the v2 API answers a write with the old and the new."""
MAX_ANSWER_PARTS = 150_000
"""So many commas and opening brackets. Each value of JSON takes some hundred bytes of memory, and three to send."""

_PARTS = (b",", b"[", b"{")
_HARDLY_ANY = 0.001
_PIECE = 16 * 1024
"""Bytes that are sent at once; one record of TLS."""


class UnusableAnswer(OSError):  # noqa: N818 - it is no fault of ours
    """The server answers what no etcd does."""


class _Bounded:
    """What the connections for HTTP and HTTPS have in common. urllib3 sets `timeout` before it connects and sends, and
    anew, to what is left, before it reads; each time that is the time for all that follows."""

    host: str
    port: int
    sock: socket.socket | None
    _deadline: float = float("inf")
    _dns_host: str
    _timeout: float | None = None

    @property
    def timeout(self) -> float | None:
        """Seconds that are left, hardly any if none are; None for no limit."""
        return None if self._timeout is None else max(self._deadline - time.monotonic(), _HARDLY_ANY)

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._timeout = seconds
        self._deadline = float("inf") if seconds is None else time.monotonic() + seconds

    def _new_conn(self) -> socket.socket:
        try:
            return self._connected()
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "the connection timed out") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, "no connection") from error  # type: ignore[arg-type]

    def _connected(self) -> socket.socket:
        found = socket.getaddrinfo(self._dns_host.strip("[]"), self.port, type=socket.SOCK_STREAM)
        cause = OSError("the name has no address")
        for position, (family, kind, protocol, _, address) in enumerate(found):
            left = None if self._timeout is None else remaining(self._deadline)
            made = socket.socket(family, kind, protocol)
            try:
                # An address that swallows packets must leave time for the next one.
                made.settimeout(None if left is None else left / (len(found) - position))
                made.connect(address)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.settimeout(self.timeout)
            except OSError as error:
                made.close()
                cause = error
            else:
                return made
        raise cause

    def send(self, data: Any) -> None:  # noqa: ANN401 - what urllib3 sends, which is bytes here
        """Send bytes before the deadline."""
        for start in range(0, len(data), _PIECE):
            if self.sock is not None:
                self.sock.settimeout(self.timeout)
            super().send(data[start : start + _PIECE])  # type: ignore[misc]

    def response_class(self, sock: socket.socket, method: str | None = None) -> "_Answer":
        """Called like the class that it is in `http.client`."""
        return _Answer(_Socket(sock, self._deadline), method=method)  # type: ignore[arg-type]


class _HttpConnection(_Bounded, HTTPConnection):  # type: ignore[misc]  # a property where urllib3 has an attribute
    pass


class _HttpsConnection(_Bounded, HTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def bound(pools: urllib3.PoolManager) -> None:
    """Have a pool manager, which has made no connection yet, make bounded ones."""
    pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


def total(seconds: float) -> urllib3.Timeout:
    """A time-out for a request from the first attempt to connect to the last byte of the answer."""
    return urllib3.Timeout(total=seconds)


class _Answer(http.client.HTTPResponse):
    def begin(self) -> None:
        super().begin()
        encoding = self.getheader("Content-Encoding")
        if encoding is not None and encoding.strip().lower() != "identity":
            raise UnusableAnswer("the answer is compressed, which was not asked for")


class _Socket:
    """What `HTTPResponse` needs of a socket: a reader, here a bounded one."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline))


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self._bytes = 0
        self._parts = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._sock.settimeout(None if self._deadline == float("inf") else remaining(self._deadline))
        count = self._raw.readinto(buffer)
        if count:
            self._count(bytes(memoryview(buffer)[:count]))
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def _count(self, data: bytes) -> None:
        self._bytes += len(data)
        self._parts += sum(data.count(part) for part in _PARTS)
        if self._bytes > MAX_ANSWER_BYTES:
            raise UnusableAnswer(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        if self._parts > MAX_ANSWER_PARTS:
            raise UnusableAnswer(f"the answer has more than {MAX_ANSWER_PARTS} parts")


def cause_of(error: BaseException) -> str:
    """Why a request failed, for a message that whoever chose the server may read: never what the server has sent."""
    found: BaseException = error
    said = ""
    while True:
        if isinstance(found, OSError) and type(found).__module__.partition(".")[0] not in ("requests", "urllib3"):
            said = str(found)
        inner = found.__cause__ or found.__context__
        if inner is None:
            return said or type(found).__name__
        found = inner
