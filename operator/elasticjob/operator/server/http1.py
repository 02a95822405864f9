"""The little of HTTP/1.1 that the rendezvous needs, read strictly.

Bodies have a length; there is no chunked coding, no upgrade, no absolute target and no folded header. Whatever is
outside of that is refused, after which the connection ends: nothing is guessed about where the next request begins.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

from elasticjob.operator.server.answers import Gzipped
from elasticjob.rendezvous.protocol import MAX_REQUEST_BYTES, PROTOCOL_HEADER, ErrorCode, ProtocolError

MAX_HEAD = 32 * 1024
"""Most bytes of a request before its body; a token may have half of them."""
MAX_HEADERS = 64
END_OF_HEAD = b"\r\n\r\n"

_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
# Patterns that read what a stranger sends must not be able to read it in two ways: that would take quadratic time.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SINGLE = frozenset({"content-length", "authorization", "host"})
_READ = _SINGLE | {"accept-encoding", "connection", "expect", "transfer-encoding", PROTOCOL_HEADER.lower()}
"""Headers that mean something here. No others are kept: a connection costs what its request costs."""
_LENGTH = re.compile(r"[0-9]{1,12}")
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request without its body. Names of headers are in lower case; those that nobody reads are left out."""

    method: str
    target: str
    headers: Mapping[str, str]
    length: int
    keeps_alive: bool

    @property
    def expects_continue(self) -> bool:
        """Whether the client wants a word before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue"

    @property
    def takes_gzip(self) -> bool:
        """Whether the client names gzip, without a weight, among the codings that it takes."""
        return "gzip" in self.headers.get("accept-encoding", "").replace(" ", "").split(",")


def read_head(block: bytes) -> Head:
    """Read what comes before the body, without the empty line that ends it.

    Raises:
        ProtocolError: `invalid` or `too-large`. Nothing else from this connection can be understood.
    """
    line, *lines = block.decode("latin-1").split("\r\n")
    request = _REQUEST_LINE.fullmatch(line)
    if request is None:
        raise _invalid("this is no request of HTTP/1.1")
    headers = _headers_of(lines)
    if "transfer-encoding" in headers:
        raise _invalid("a body must have a length")
    return Head(
        method=request[1],
        target=request[2],
        headers=headers,
        length=_length_of(headers),
        keeps_alive=request[3] == "1" and "close" not in headers.get("connection", "").lower(),
    )


@lru_cache(maxsize=64)
def _name_of(written: str) -> str | None:
    """The name of a header in lower case; None if it cannot be one. Clients write the same few, again and again."""
    return written.lower() if _NAME.fullmatch(written) else None


def _headers_of(lines: list[str]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise _invalid(f"a request may have {MAX_HEADERS} headers, this one has {len(lines)}")
    headers: dict[str, str] = {}
    for line in lines:
        written, colon, value = line.partition(":")
        name = _name_of(written)
        if not colon or name is None or (not value.isprintable() and _CONTROL.search(value)):
            raise _invalid("a header is malformed")
        if name not in _READ:
            continue
        value = value.strip(" \t")
        if headers.setdefault(name, value) != value:
            if name in _SINGLE:
                raise _invalid(f"the header {name} is there twice")
            headers[name] = f"{headers[name]}, {value}"
    return headers


def answer_bytes(
    status: int, body: bytes | Gzipped, *, date: str, retry_after: str | None = None, closes: bool = False
) -> bytes:
    """One whole answer."""
    extra = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    if closes:
        extra += "Connection: close\r\n"
    if isinstance(body, Gzipped):
        body, extra = body.content, extra + "Content-Encoding: gzip\r\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nDate: {date}\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + body


def _length_of(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    if _LENGTH.fullmatch(text) is None:
        raise _invalid("the length of the body must be a number")
    if int(text) > MAX_REQUEST_BYTES:
        raise ProtocolError(ErrorCode.TOO_LARGE, f"a body may have {MAX_REQUEST_BYTES} bytes")
    return int(text)


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID, why)
