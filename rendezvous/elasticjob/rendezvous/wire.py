"""Strict reading of JSON values that another machine has sent.

Each reader checks type, range and length of one field and raises `ProtocolError` with the code `invalid`, naming the
field. Error codes live here too, since everything that reads the wire can refuse it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

MAX_NAME = 253
"""Length of the longest DNS name."""
MAX_MESSAGE = 1024
"""Longest message in characters; longer ones are cut by the sender's `shorten`, refused by the receiver."""
MAX_INCARNATION = 64
MAX_ROUND = 2**31 - 1
MAX_WAIT_SECONDS = 30.0
"""Longest time that a long poll is held."""
MAX_SECONDS = 2.0**32
"""Longest time that is told to workers; a job may order any of up to 2**31 - 1 seconds, and two of them in a row."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Largest answer a worker reads: some 60,000 members."""

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

SURROGATE = re.compile("[\ud800-\udfff]")
"""What UTF-8 cannot carry."""


class ErrorCode(str, Enum):
    """Why a call was refused. The value is what travels."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    FENCED = "fenced"
    UNKNOWN_RUN = "unknown-run"
    UNKNOWN_NODE = "unknown-node"
    STALE_ROUND = "stale-round"
    CLOSED = "closed"
    INVALID = "invalid"
    TOO_LARGE = "too-large"
    REQUEST_TIMEOUT = "request-timeout"
    UNSUPPORTED_PROTOCOL = "unsupported-protocol"
    NOT_READY = "not-ready"
    OVERLOADED = "overloaded"

    @property
    def http_status(self) -> int:
        return _HTTP_STATUS[self]

    @property
    def retryable(self) -> bool:
        """True if the same call may succeed later without anything changing at the caller."""
        return self in _RETRYABLE


_HTTP_STATUS = {
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.FENCED: 403,
    ErrorCode.UNKNOWN_RUN: 404,
    ErrorCode.UNKNOWN_NODE: 404,
    ErrorCode.STALE_ROUND: 409,
    ErrorCode.CLOSED: 410,
    ErrorCode.INVALID: 400,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.REQUEST_TIMEOUT: 408,
    ErrorCode.UNSUPPORTED_PROTOCOL: 426,
    ErrorCode.NOT_READY: 503,
    ErrorCode.OVERLOADED: 429,
}
_RETRYABLE = frozenset(
    {
        ErrorCode.UNKNOWN_RUN,
        ErrorCode.UNKNOWN_NODE,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
    }
)


@dataclass(frozen=True, kw_only=True)
class Closed:
    """The run has ended. `reason` is a value of `orders.CloseReason`."""

    reason: str
    message: str = ""

    def to_json(self) -> Json:
        return {"reason": self.reason, "message": self.message}

    @classmethod
    def from_json(cls, value: object) -> "Closed":
        fields = read_object(value, "closed")
        return cls(
            reason=read_text(fields, "reason", limit=64),
            message=read_text(fields, "message", limit=MAX_MESSAGE, default=""),
        )


class ProtocolError(Exception):
    """A call that is refused, at either end.

    Args:
        code: The reason, as it travels.
        message: For people; names the object and the limit.
        closed: Set with the code `closed`.
    """

    def __init__(self, code: ErrorCode, message: str, *, closed: Closed | None = None) -> None:
        super().__init__(f"{code.value}: {message}")
        self.code = code
        self.message = message
        self.closed = closed

    def to_json(self) -> Json:
        body: Json = {"error": {"code": self.code.value, "message": self.message}}
        if self.closed is not None:
            body["closed"] = self.closed.to_json()
        return body

    @classmethod
    def from_json(cls, value: object) -> "ProtocolError":
        """Read a refusal.

        Raises:
            ProtocolError: `invalid`, if the value is no refusal; a code of a newer version is `invalid` as well.
        """
        fields = read_object(value, "answer")
        error = read_object(fields.get("error"), "error")
        closed = fields.get("closed")
        return cls(
            read_choice(error, "code", ErrorCode),
            read_text(error, "message", limit=MAX_ANSWER_BYTES, default=""),
            closed=None if closed is None else Closed.from_json(closed),
        )


def shorten(message: str, limit: int = MAX_MESSAGE) -> str:
    """Cut a message to what may travel, marking the cut, and replace what UTF-8 cannot carry (lone surrogates)."""
    clean = message.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def dumps(value: Json) -> bytes:
    """Encode one body."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def loads(body: bytes) -> object:
    """Decode one body.

    Raises:
        ProtocolError: `invalid`, whatever is wrong with the bytes.
    """
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(ErrorCode.INVALID, f"the body is not JSON: {error}") from error


def parse(body: bytes, reader: Callable[[object], T]) -> T:
    """Decode one body into a type, e.g. `parse(body, JoinRequest.from_json)`.

    Raises:
        ProtocolError: `invalid`, naming the field.
    """
    return reader(loads(body))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# Made once: json.dumps and json.loads make new ones for each call with arguments.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def invalid(field: str, why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID, f"{field} {why}")


def read_object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise invalid(name, "must be an object")
    return value


def read_text(fields: Mapping[str, Any], name: str, *, limit: int, least: int = 0, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise invalid(name, "must be a string")
    if not least <= len(value) <= limit:
        raise invalid(name, f"must have {least} to {limit} characters, has {len(value)}")
    if limit <= MAX_NAME and not value.isprintable():
        raise invalid(name, "must be printable")
    if SURROGATE.search(value):
        raise invalid(name, "must not hold lone surrogates")
    return value


def read_integer(fields: Mapping[str, Any], name: str, *, low: int, high: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(name, "must be an integer")
    if not low <= value <= high:
        raise invalid(name, f"must be from {low} to {high}")
    return value


def read_number(
    fields: Mapping[str, Any], name: str, *, low: float, high: float, default: float | None = None
) -> float:
    value = fields.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise invalid(name, "must be a number")
    if not low <= value <= high:
        raise invalid(name, f"must be from {low:g} to {high:g}")
    return float(value)


def read_choice(fields: Mapping[str, Any], name: str, choices: type[E]) -> E:
    value = fields.get(name)
    for choice in choices:
        if choice.value == value:
            return choice
    raise invalid(name, "must be one of " + ", ".join(str(choice.value) for choice in choices))


def read_incarnation(fields: Mapping[str, Any]) -> str:
    return read_text(fields, "incarnation", limit=MAX_INCARNATION, least=1)


def read_round(fields: Mapping[str, Any]) -> int:
    return read_integer(fields, "round", low=0, high=MAX_ROUND)
