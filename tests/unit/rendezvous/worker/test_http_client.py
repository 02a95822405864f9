"""Calls that end, whatever the other side does."""

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from elasticjob.rendezvous import http_client
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.http_client import HttpCallError, HttpClient
from tests.unit.rendezvous.worker.certificates import Authority
from tests.unit.rendezvous.worker.fake_server import FakeServer, serving

HEARTBEAT = "/v1/runs/run-1/heartbeat"
BEAT = {"incarnation": "x", "round": 0, "wait": 0}


class Connect(Protocol):
    """Makes a client that is closed at the end of the test."""

    def __call__(
        self, endpoint: ServerEndpoint, *, token_file: Path | None = None, ca_file: Path | None = None
    ) -> HttpClient: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as clients:

        def make(
            endpoint: ServerEndpoint, *, token_file: Path | None = None, ca_file: Path | None = None
        ) -> HttpClient:
            return clients.enter_context(closing(HttpClient(endpoint, token_file=token_file, ca_file=ca_file)))

        yield make


@contextmanager
def _listening(talk: Callable[[socket.socket], None]) -> Iterator[ServerEndpoint]:
    """A server that says to each caller whatever `talk` says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ServerEndpoint(host="127.0.0.1", port=port)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_one_connection_serves_many_calls(connect: Connect, server: FakeServer) -> None:
    client = connect(server.endpoint)
    assert [client.call("POST", HEARTBEAT, BEAT, timeout=5).status for _ in range(5)] == [200] * 5
    assert server.opened == 1


def test_a_kept_connection_that_the_server_dropped_is_replaced(connect: Connect, server: FakeServer) -> None:
    client = connect(server.endpoint)
    client.call("POST", HEARTBEAT, BEAT, timeout=5)
    server.close_connections()
    assert client.call("POST", HEARTBEAT, BEAT, timeout=5).status == 200
    assert server.opened == 2


def test_a_rotated_token_is_sent_with_the_next_call(connect: Connect, server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    client = connect(server.endpoint, token_file=token)
    for value in ("first", "second\n"):
        token.write_text(value, encoding="ascii")
        client.call("POST", HEARTBEAT, BEAT, timeout=5)
    assert [identity for _, _, identity, _ in server.calls] == ["first", "second"]


@pytest.mark.parametrize("content", ["", "two words", "line\nbreak"])
def test_a_file_without_a_token_is_named(connect: Connect, server: FakeServer, tmp_path: Path, content: str) -> None:
    token = tmp_path / "token"
    token.write_text(content, encoding="ascii")
    with pytest.raises(HttpCallError, match=str(token)):
        connect(server.endpoint, token_file=token).call("POST", HEARTBEAT, BEAT, timeout=5)
    token.unlink()
    with pytest.raises(HttpCallError, match=str(token)):
        connect(server.endpoint, token_file=token).call("POST", HEARTBEAT, BEAT, timeout=5)


def test_a_refused_connection_names_endpoint_and_cause(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(HttpCallError, match=rf"http://127\.0\.0\.1:{port}/x: .*refused"):
        connect(ServerEndpoint(host="127.0.0.1", port=port)).call("GET", "/x", timeout=5)


def test_a_name_that_does_not_resolve_is_named(connect: Connect) -> None:
    with pytest.raises(HttpCallError, match=r"nowhere\.invalid"):
        connect(ServerEndpoint(host="nowhere.invalid", port=1)).call("GET", "/x", timeout=5)


def _silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def _drip(connection: socket.socket) -> None:
    connection.recv(4096)
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + b"X-Slow: 1\r\n" * 20:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


@pytest.mark.parametrize("talk", [_silent, _drip])
def test_a_call_ends_at_its_deadline_even_if_bytes_trickle_in(
    connect: Connect, talk: Callable[[socket.socket], None]
) -> None:
    with _listening(talk) as endpoint:
        started = time.monotonic()
        with pytest.raises(HttpCallError, match="timed out"):
            connect(endpoint).call("GET", "/x", timeout=0.3)
        assert time.monotonic() - started < 2.0


def test_an_endless_answer_is_cut_off(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 1000)

    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b" " * 5000)

    with _listening(talk) as endpoint, pytest.raises(HttpCallError, match="longer than 1000 bytes"):
        connect(endpoint).call("GET", "/x", timeout=5)


@pytest.mark.parametrize("size", [b"-1", b"2", b"ffffffff"])
def test_an_answer_in_chunks_is_refused_and_not_read(connect: Connect, size: bytes) -> None:
    """The standard library takes -1 for the size of a chunk, and reads all that comes then."""

    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n{}\r\n0\r\n\r\n")

    with _listening(talk) as endpoint, pytest.raises(HttpCallError, match="transfer coding"):
        connect(endpoint).call("GET", "/x", timeout=5)


def test_no_more_bytes_are_taken_than_any_answer_has(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is provisional answers of which there is no end."""
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 1000)
    monkeypatch.setattr(http_client, "MAX_HEAD_BYTES", 1000)
    sent = 0

    def talk(connection: socket.socket) -> None:
        nonlocal sent
        connection.recv(4096)
        for _ in range(10_000):
            sent += connection.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 40)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with _listening(talk) as endpoint, pytest.raises(HttpCallError, match="longer than 1000 bytes"):
        connect(endpoint).call("GET", "/x", timeout=20)
    assert sent < 10_000 * 1000, "all was taken"


@pytest.mark.parametrize("said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
def test_nonsense_and_cut_answers_are_call_errors(connect: Connect, said: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(said)

    with _listening(talk) as endpoint, pytest.raises(HttpCallError):
        connect(endpoint).call("GET", "/x", timeout=5)


def test_a_compressed_answer_is_read(connect: Connect, server: FakeServer) -> None:
    server.fail((200, gzip.compress(b'{"state": "x"}'), {"Content-Encoding": "gzip"}))
    assert connect(server.endpoint).call("GET", "/x", timeout=5).content == b'{"state": "x"}'


@pytest.mark.parametrize(
    "content",
    [gzip.compress(bytes(10_001)), gzip.compress(b"{}")[:-9], b"no gzip"],
    ids=["too-long", "cut", "nonsense"],
)
def test_a_compressed_answer_that_cannot_be_used_is_a_call_error(
    connect: Connect, server: FakeServer, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 10_000)
    server.fail((200, content, {"Content-Encoding": "gzip"}))
    with pytest.raises(HttpCallError, match=r"gzip|longer"):
        connect(server.endpoint).call("GET", "/x", timeout=5)


def test_a_redirect_is_not_followed(connect: Connect, server: FakeServer) -> None:
    server.fail((302, b"", {"Location": "http://127.0.0.1:1/"}))
    assert connect(server.endpoint).call("GET", "/x", timeout=5).status == 302


def test_a_number_of_seconds_to_wait_is_read_and_anything_else_ignored(connect: Connect, server: FakeServer) -> None:
    client = connect(server.endpoint)
    server.fail((503, b"{}", {"Retry-After": "7"}), (503, b"{}", {"Retry-After": "Sun, 29 Nov 2026 17:00:00 GMT"}))
    assert client.call("GET", "/x", timeout=5).retry_after == 7.0
    assert client.call("GET", "/x", timeout=5).retry_after is None


def test_an_ipv6_server_is_called_with_brackets_in_the_host_header(connect: Connect) -> None:
    with serving(FakeServer(host="::1")) as server:
        assert connect(server.endpoint).call("POST", HEARTBEAT, BEAT, timeout=5).status == 200


def test_a_server_without_tls_behind_an_https_endpoint_is_a_call_error(connect: Connect, server: FakeServer) -> None:
    endpoint = ServerEndpoint(host="127.0.0.1", port=server.endpoint.port, tls=True)
    with pytest.raises(HttpCallError, match=r"https://127\.0\.0\.1.*the server does not speak TLS"):
        connect(endpoint).call("GET", "/x", timeout=5)


def test_a_server_with_tls_behind_an_http_endpoint_is_a_call_error(connect: Connect, tmp_path: Path) -> None:
    with serving(FakeServer()) as server:
        _speak_tls(server, Authority("ca"), tmp_path)
        with pytest.raises(HttpCallError, match=r"http://127\.0\.0\.1.*does the server speak TLS"):
            connect(server.endpoint).call("POST", HEARTBEAT, BEAT, timeout=5)


def test_a_rotated_authority_is_trusted_from_the_next_connection_on(connect: Connect, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    old, new = Authority("old"), Authority("new")
    ca_file.write_bytes(old.certificate)
    with serving(FakeServer()) as server:
        _speak_tls(server, new, tmp_path)
        endpoint = ServerEndpoint(host="127.0.0.1", port=server.endpoint.port, tls=True)
        client = connect(endpoint, ca_file=ca_file)
        with pytest.raises(HttpCallError, match="certificate"):
            client.call("POST", HEARTBEAT, BEAT, timeout=5)
        replacement = tmp_path / "ca.new"
        replacement.write_bytes(old.certificate + new.certificate)
        replacement.replace(ca_file)
        answer = client.call("POST", HEARTBEAT, BEAT, timeout=5)
        assert json.loads(answer.content)["round"] == 0


def test_a_certificate_for_another_name_is_refused(connect: Connect, tmp_path: Path) -> None:
    authority = Authority("ca")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(authority.certificate)
    with serving(FakeServer()) as server:
        _speak_tls(server, authority, tmp_path)
        endpoint = ServerEndpoint(host="localhost", port=server.endpoint.port, tls=True)
        with pytest.raises(HttpCallError, match="certificate"):
            connect(endpoint, ca_file=ca_file).call("POST", HEARTBEAT, BEAT, timeout=5)


def _speak_tls(server: FakeServer, authority: Authority, directory: Path) -> None:
    """Serve TLS with a certificate for 127.0.0.1."""
    pair = directory / "server.pem"
    pair.write_bytes(authority.issue("127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    server.tls = context
