"""Reading requests strictly, and writing answers."""

import pytest

from elasticjob.operator.server.answers import Gzipped
from elasticjob.operator.server.http1 import answer_bytes, read_head
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError


def test_a_request_is_read() -> None:
    head = read_head(
        b"POST /v1/runs/r/join?wait=2 HTTP/1.1\r\nHost: a\r\nContent-Length:  12 \r\n"
        b"Accept-Encoding: br\r\naccept-encoding: gzip\r\nExpect: 100-Continue"
    )
    assert (head.method, head.target, head.length) == ("POST", "/v1/runs/r/join?wait=2", 12)
    assert head.headers["accept-encoding"] == "br, gzip"
    assert head.keeps_alive
    assert head.expects_continue


def test_a_connection_keeps_no_more_headers_than_are_read() -> None:
    lines = "".join(f"\r\nx-{number}: a" for number in range(62))
    head = read_head(f"GET / HTTP/1.1\r\nHost: a{lines}\r\nAuthorization: Bearer a".encode())
    assert head.headers == {"host": "a", "authorization": "Bearer a"}


def test_a_request_with_very_many_headers_is_refused() -> None:
    with pytest.raises(ProtocolError, match="may have 64 headers, this one has 65") as refused:
        read_head(b"GET / HTTP/1.1" + b"\r\na:" * 65)
    assert refused.value.code is ErrorCode.INVALID


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [("1", "", True), ("1", "Close", False), ("0", "", False), ("1", "TE, close", False)],
)
def test_whether_the_connection_is_kept(version: str, connection: str, keeps: bool) -> None:
    assert read_head(f"GET / HTTP/1.{version}\r\nConnection: {connection}".encode()).keeps_alive is keeps


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x16\x03\x01\x02",
        b"GET / HTTP/2.0",
        b"GET  / HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
        b"get / HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET / HTTP/1.1\r\nName : x",
        b"GET / HTTP/1.1\r\n folded: x",
        b"GET / HTTP/1.1\r\nName: a\nOther: b",
        b"GET / HTTP/1.1\r\nName: a\x00",
        b"GET / HTTP/1.1\r\nno colon",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked",
        b"POST / HTTP/1.1\r\nContent-Length: -1",
        b"POST / HTTP/1.1\r\nContent-Length: 1_0",
        b"POST / HTTP/1.1\r\nContent-Length: \xb2",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"POST / HTTP/1.1\r\nAuthorization: Bearer a\r\nauthorization: Bearer b",
    ],
)
def test_what_is_not_understood_is_refused_and_nothing_is_guessed(block: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_head(block)
    assert refused.value.code is ErrorCode.INVALID


@pytest.mark.parametrize(
    "block",
    [
        b"GET / HTTP/1.1\r\nName:" + b" " * 2_000_000 + b"\x00",
        b"GET / HTTP/1.1\r\nName: a" + b"\t" * 2_000_000 + b"\x00",
        b"GET / HTTP/1.1\r\n" + b"a" * 2_000_000,
        b"GET /" + b"a" * 2_000_000 + b"\x00 HTTP/1.1",
        b"GET / HTTP/1.1\r\n" + b": " * 1_000_000,
    ],
    ids=["spaces before a value", "spaces after a value", "a name", "a target", "colons"],
)
def test_to_refuse_a_request_takes_time_in_proportion_to_its_length(block: bytes) -> None:
    # With a pattern that tries each of the spaces anew, this would take hours.
    with pytest.raises(ProtocolError):
        read_head(block)


def test_a_body_that_is_too_large_is_refused_by_its_announcement() -> None:
    with pytest.raises(ProtocolError) as refused:
        read_head(b"POST / HTTP/1.1\r\nContent-Length: 65537")
    assert refused.value.code is ErrorCode.TOO_LARGE


def test_an_answer_is_written() -> None:
    answer = answer_bytes(503, b"{}", date="Sun, 29 Nov 2026 19:00:00 GMT", retry_after="1", closes=True)
    assert answer == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        b"Date: Sun, 29 Nov 2026 19:00:00 GMT\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("named", "takes"),
    [
        ("gzip", True),
        ("br, gzip", True),
        ("deflate,gzip ,br", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("", False),
    ],
)
def test_whether_a_compressed_answer_is_taken(named: str, takes: bool) -> None:
    assert read_head(f"GET / HTTP/1.1\r\nAccept-Encoding: {named}".encode()).takes_gzip is takes


def test_a_compressed_answer_says_so() -> None:
    answer = answer_bytes(200, Gzipped(b"abc"), date="now")
    assert b"Content-Encoding: gzip\r\n" in answer
    assert answer.endswith(b"Content-Length: 3\r\nDate: now\r\nContent-Encoding: gzip\r\n\r\nabc")
