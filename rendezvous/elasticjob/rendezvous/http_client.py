"""A small HTTP client on the standard library, for calls that must end.

- Every call has one deadline for everything: connecting, TLS, sending, waiting, and reading, byte by byte.
- The token file is read for each call and the CA file for each connection that follows a change, since the kubelet
  and the operator rotate both while the process runs.
- The connection is kept and used again. One that the server has closed meanwhile is replaced without a fuss.
- Answers are bounded in size, before and after they are decompressed, and their length is told before they begin;
  redirects are not followed, proxies are not used.

An instance has one connection and is for one thread; `close()` and `interrupt()` alone may be called from another.
"""

import contextlib
import http.client
import io
import socket
import ssl
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticjob.rendezvous.deadline import remaining
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.protocol import MAX_ANSWER_BYTES, PROTOCOL_HEADER, PROTOCOL_VERSION, Json, dumps

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_TOKEN_BYTES = 64 * 1024
MAX_HEAD_BYTES = 64 * 1024
"""Room for what comes before the body of an answer."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
_DEAD_CONNECTION = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class HttpCallError(Exception):
    """No usable answer was received. The message names the server and the cause."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said, not interpreted. `retry_after` is in seconds, None if the server did not say."""

    status: int
    content: bytes
    retry_after: float | None = None


class HttpClient:
    """Calls one server.

    Args:
        endpoint: The server.
        token_file: File with the bearer token, read for each call; None to send none.
        ca_file: Certificates to check the server against; None for those of the system.
    """

    def __init__(
        self, endpoint: ServerEndpoint, *, token_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        self._endpoint = endpoint
        self._token_file = token_file
        self._tls = _TlsContext(ca_file) if endpoint.tls else None
        self._connection: _Connection | None = None

    def call(self, method: str, path: str, body: Json | None = None, *, timeout: float) -> Answer:
        """Make one call and return whatever status the server answers.

        A kept connection that turns out to be dead before the first byte of an answer is replaced once, so a call may
        reach the server twice: only calls that may be repeated are made through this client.

        Args:
            method: HTTP method.
            path: Absolute path with query.
            body: JSON object to send, if any.
            timeout: Seconds after which the call has ended, one way or the other.

        Raises:
            HttpCallError: The server cannot be reached, or did not answer, in time.
        """
        deadline = time.monotonic() + timeout
        try:
            return self._call(method, path, body, deadline)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            hint = "" if self._endpoint.tls else _hint(error)
            raise HttpCallError(f"{method} {self._endpoint}{path}: {_cause(error)}{hint}") from error
        except BaseException:
            # An exception from a signal handler leaves half an answer in the connection.
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection. The next call opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Make the call under way fail now. The next one opens a new connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):  # it is gone already
                # Not the method of the TLS socket: that would take the session from under the thread that reads.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def _call(self, method: str, path: str, body: Json | None, deadline: float) -> Answer:
        headers = self._headers()
        payload = None if body is None else dumps(body)
        kept = self._connection
        if kept is not None:
            try:
                return self._exchange(kept, method, path, payload, headers, deadline)
            except _DEAD_CONNECTION:
                if self._connection is not kept:  # interrupted: the call is not wanted any more
                    raise
                self.close()
        fresh = self._connection = _Connection(self._endpoint, self._connect(deadline))
        return self._exchange(fresh, method, path, payload, headers, deadline)

    def _exchange(
        self,
        connection: "_Connection",
        method: str,
        path: str,
        payload: bytes | None,
        headers: dict[str, str],
        deadline: float,
    ) -> Answer:
        try:
            return self._converse(connection, method, path, payload, headers, deadline)
        finally:
            if self._connection is not connection:  # interrupted: nobody else closes it
                connection.close()

    def _converse(
        self,
        connection: "_Connection",
        method: str,
        path: str,
        payload: bytes | None,
        headers: dict[str, str],
        deadline: float,
    ) -> Answer:
        connection.deadline = deadline
        connection.sock.settimeout(remaining(deadline))
        connection.request(method, path, body=payload, headers=headers)
        with connection.getresponse() as response:
            if response.getheader("Transfer-Encoding") is not None:
                # The server sends none. `http.client` reads a chunk of a negative size to the end of the connection.
                raise ValueError("the answer has a transfer coding, which the rendezvous server never uses")
            content = response.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise ValueError(_too_long())
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
        if response.getheader("Content-Encoding") == "gzip":
            content = _decompress(content)
        if response.will_close:
            self.close()
        retry_after = _seconds(response.getheader("Retry-After"))
        return Answer(status=response.status, content=content, retry_after=retry_after)

    def _connect(self, deadline: float) -> socket.socket:
        failures: list[str] = []
        found = socket.getaddrinfo(self._endpoint.host, self._endpoint.port, type=socket.SOCK_STREAM)
        for position, (family, kind, protocol, _, address) in enumerate(found):
            left = remaining(deadline)
            plain = socket.socket(family, kind, protocol)
            try:
                # An address that swallows packets must leave time for the next one.
                plain.settimeout(left / (len(found) - position))
                plain.connect(address)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    return plain
                plain.settimeout(remaining(deadline))
                return self._tls.current().wrap_socket(plain, server_hostname=self._endpoint.host)
            except BaseException as error:
                plain.close()
                if not isinstance(error, OSError):
                    raise
                failures.append(f"{address[0]}: {_cause(error)}")
        raise OSError("; ".join(failures) or "the name has no address")

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            PROTOCOL_HEADER: PROTOCOL_VERSION,
        }
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {_read_token(self._token_file)}"
        return headers


class _TlsContext:
    """A TLS context that follows its CA file: made anew when the file has been replaced."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._seen: tuple[int, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        seen = self._identity()
        if self._context is None or seen != self._seen:
            self._context = ssl.create_default_context(cafile=self._ca_file)
            self._seen = seen
        return self._context

    def _identity(self) -> tuple[int, ...]:
        if self._ca_file is None:
            return ()
        found = self._ca_file.stat()
        return (found.st_ino, found.st_mtime_ns, found.st_size)


class _Connection(http.client.HTTPConnection):
    """A connection over a socket that is already open, whose answers end at `deadline` (monotonic seconds)."""

    sock: socket.socket
    auto_open = 0

    def __init__(self, endpoint: ServerEndpoint, sock: socket.socket) -> None:
        super().__init__(endpoint.host, endpoint.port)
        self.sock = sock
        self.deadline = 0.0
        self.response_class = self._response  # type: ignore[assignment]  # called like the class

    def _response(self, sock: socket.socket, method: str | None = None) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_DeadlineSocket(sock, self.deadline), method=method)  # type: ignore[arg-type]


class _DeadlineSocket:
    """What `HTTPResponse` needs of a socket: a reader, here one that ends at a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._sock, self._deadline))


class _DeadlineReader(io.RawIOBase):
    """Reads one answer from a socket, and no more bytes than any answer has, however its length is told.

    A server that sends one byte at a time gets no more time than one that sends nothing.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self._left = MAX_HEAD_BYTES + MAX_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._sock.settimeout(remaining(self._deadline))
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise ValueError(_too_long())
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _too_long() -> str:
    return f"the answer is longer than {MAX_ANSWER_BYTES} bytes"


def _decompress(content: bytes) -> bytes:
    decompress = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = decompress.decompress(content, MAX_ANSWER_BYTES)
    except zlib.error as error:
        raise ValueError(f"the answer is no gzip: {error}") from error
    if not decompress.eof:
        raise ValueError(f"the answer is cut, or longer than {MAX_ANSWER_BYTES} bytes")
    return plain


def _seconds(header: str | None) -> float | None:
    # The header may also be a date, which the rendezvous server never sends.
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _read_token(path: Path) -> str:
    with path.open("rb") as file:
        token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
    if not token or any(character.isspace() or not character.isprintable() for character in token):
        raise ValueError(f"token file {path} holds no token")
    return token


def _cause(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return f"the server does not speak TLS, or none that is known here: {text}"
    return text


def _hint(error: BaseException) -> str:
    """What may be behind an error on a connection without TLS: a server with TLS hangs up or answers in bytes."""
    hung_up = isinstance(error, (http.client.BadStatusLine, *_DEAD_CONNECTION))
    return " (or does the server speak TLS?)" if hung_up else ""
