"""Servers that a job names as its etcd and that are none, or none that is honest."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from elasticjob.rendezvous.backends.etcd_client import EtcdClient
from elasticjob.rendezvous.backends.etcd_transport import MAX_ANSWER_BYTES, MAX_ANSWER_PARTS
from elasticjob.rendezvous.backends.etcd_v2_keys import EtcdV2Keys, connect
from elasticjob.rendezvous.backends.options import FOR_EVER, EtcdOptions
from elasticjob.rendezvous.errors import RendezvousConnectionError

SECRET = "the-secret-of-another-tenant"
Call = Callable[[EtcdOptions], object]


def ask_v3(options: EtcdOptions) -> object:
    return EtcdClient(options, ttl=FOR_EVER).get("key")


def ask_v2(options: EtcdOptions) -> object:
    return EtcdV2Keys(connect(options)).read("/key")


def watch(options: EtcdOptions) -> object:
    return EtcdClient(options, ttl=FOR_EVER).wait_for_change("key", after=1, timeout=2)


BOTH = pytest.mark.parametrize("call", [ask_v3, ask_v2])
ALL = pytest.mark.parametrize("call", [ask_v3, ask_v2, watch])


class Server:
    """Sends the same pieces to each caller, as long as there are any and the caller listens."""

    def __init__(self, pieces: Callable[[], Iterator[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.sent = 0
        self.stop = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._pieces = pieces

    @property
    def options(self) -> EtcdOptions:
        return EtcdOptions(host="127.0.0.1", port=self.listener.getsockname()[1], read_timeout=1)

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            self.requests.append(caller.recv(65536))
            for piece in self._pieces():
                if self.stop.is_set():
                    return
                caller.sendall(piece)
                self.sent += len(piece)
            caller.shutdown(socket.SHUT_WR)
            self.stop.wait(20)


@contextmanager
def serving(pieces: Callable[[], Iterator[bytes]]) -> Iterator[Server]:
    server = Server(pieces)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(20)


def answer(body: bytes, *headers: str, status: str = "200 OK") -> Callable[[], Iterator[bytes]]:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers))
    return lambda: iter([f"{head}\r\n".encode() + body])


def slowly(head: bytes) -> Callable[[], Iterator[bytes]]:
    """One byte at a time, each well before a time-out for a read would end."""

    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            time.sleep(0.05)
            yield b"x"

    return pieces


def endless(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        while True:
            yield piece

    return pieces


def refused(call: Call, server: Server) -> str:
    """The error, which must come although the server goes on for ever."""
    told: list[str] = []

    def ask() -> None:
        try:
            call(server.options)
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the call does not end"
    assert told, "the call was answered"
    assert told[0].startswith(RendezvousConnectionError.__name__)
    return told[0]


@ALL
def test_a_compressed_answer_is_refused(call: Call) -> None:
    body = gzip.compress(b" " * 4096 + b'{"header": {"revision": "1"}}')
    with serving(answer(body, "Content-Encoding: gzip")) as server:
        assert "compressed" in refused(call, server)
        assert b"accept-encoding: identity" in server.requests[0].lower()


@ALL
def test_an_answer_without_an_end_is_refused(call: Call) -> None:
    with serving(endless(b" " * 65536)) as server:
        assert f"more than {MAX_ANSWER_BYTES} bytes" in refused(call, server)


@BOTH
def test_an_answer_of_very_many_values_is_refused(call: Call) -> None:
    body = b'{"header": {"revision": "1"}, "kvs": [' + b"[]," * MAX_ANSWER_PARTS + b"[]]}"
    with serving(answer(body)) as server:
        assert f"more than {MAX_ANSWER_PARTS} parts" in refused(call, server)


@BOTH
@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_a_server_that_sends_a_byte_at_a_time_gets_no_more_time(call: Call, head: bytes) -> None:
    with serving(slowly(head)) as server:
        assert "timed out" in refused(call, server)


def test_a_watch_that_sends_a_byte_at_a_time_ends_with_its_time() -> None:
    with serving(slowly(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n")) as server:
        thread = threading.Thread(target=watch, args=(server.options,), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


@ALL
@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
def test_redirects_are_not_followed(call: Call, status: str) -> None:
    with serving(answer(b'{"header": {"revision": "1"}}')) as other:
        place = f"Location: {other.options.url}/latest/meta-data"
        with serving(answer(b"", place, status=status)) as server:
            refused(call, server)
        assert other.requests == []


@ALL
@pytest.mark.parametrize(
    "pieces",
    [
        answer(SECRET.encode()),
        answer(f'"{SECRET}"'.encode()),
        answer(f'{{"{SECRET}": 1}}'.encode()),
        answer(SECRET.encode(), status="500 Internal Server Error"),
        answer(SECRET.encode(), status="404 Not Found"),
        answer(f'{{"message": "{SECRET}", "code": 401}}'.encode(), status="401 Unauthorized"),
        answer(f'{{"error": "{SECRET}"}}'.encode(), status="200 OK"),
        answer(f'{{"header": {{"revision": "{SECRET}"}}}}'.encode()),
        answer(f'{{"node": {{"key": "k", "modifiedIndex": "{SECRET}"}}}}'.encode()),
        answer(b"", status=f"200{SECRET}"),
        lambda: iter([SECRET.encode() + b"\r\n\r\n"]),
    ],
)
def test_what_another_server_says_is_not_quoted(call: Call, pieces: Callable[[], Iterator[bytes]]) -> None:
    with serving(pieces) as server:
        assert SECRET not in refused(call, server)


@pytest.mark.parametrize("body", [b'{"error": {"message": "%s"}}', b'{"error": "%s", "code": 7}', b'{"message": "%s"}'])
def test_what_etcd_says_is_quoted(body: bytes) -> None:
    with (
        serving(answer(body % b"etcdserver: permission denied", status="403 Forbidden")) as server,
        pytest.raises(RendezvousConnectionError, match="status 403: etcdserver: permission denied"),
    ):
        ask_v3(server.options)


def test_what_etcd_says_on_the_v2_api_is_quoted() -> None:
    body = b'{"errorCode": 110, "message": "The request requires user authentication", "cause": "", "index": 3}'
    with (
        serving(answer(body, status="401 Unauthorized")) as server,
        pytest.raises(RendezvousConnectionError, match="requires user authentication"),
    ):
        ask_v2(server.options)
