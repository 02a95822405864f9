"""Wire types of the hosted rendezvous: what a worker and the operator send each other, version 1.

JSON over HTTP. Both ends use these types, so that a field has one name, one meaning and one bound. Parsing is strict
about what it knows (type, range, length) and silent about what it does not (an unknown field is ignored), so a newer
end may add fields without a new version. Whatever does not parse raises `ProtocolError` with the code `invalid` and
names the field; nothing else escapes, whatever the bytes are. No I/O, standard library only.

`docs/protocol.md` describes the calls.
"""

from dataclasses import dataclass
from enum import Enum

from elasticjob.rendezvous.joining import (
    Failure,
    JoinAnswer,
    JoinFormed,
    JoinRequest,
    JoinWaiting,
    Member,
    join_answer_from_json,
)
from elasticjob.rendezvous.wire import (
    MAX_ANSWER_BYTES,
    MAX_INCARNATION,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_ROUND,
    MAX_SECONDS,
    MAX_WAIT_SECONDS,
    Closed,
    ErrorCode,
    Json,
    ProtocolError,
    dumps,
    invalid,
    loads,
    parse,
    read_choice,
    read_incarnation,
    read_integer,
    read_number,
    read_object,
    read_round,
    read_text,
    shorten,
)

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_INCARNATION",
    "MAX_MESSAGE",
    "MAX_NAME",
    "MAX_REQUEST_BYTES",
    "MAX_ROUND",
    "MAX_WAIT_SECONDS",
    "PROTOCOL_HEADER",
    "PROTOCOL_VERSION",
    "Closed",
    "Endpoint",
    "EndpointRequest",
    "ErrorCode",
    "Failure",
    "HeartbeatAnswer",
    "HeartbeatRequest",
    "JoinAnswer",
    "JoinFormed",
    "JoinRequest",
    "JoinWaiting",
    "Json",
    "LeaveOutcome",
    "LeaveRequest",
    "Member",
    "ProtocolError",
    "dumps",
    "join_answer_from_json",
    "loads",
    "parse",
    "shorten",
]

PROTOCOL_VERSION = "1"
PROTOCOL_HEADER = "Elasticjob-Protocol"

MAX_REQUEST_BYTES = 64 * 1024
"""Largest body of a call."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the store of rank 0 listens."""

    address: str
    port: int

    def to_json(self) -> Json:
        return {"address": self.address, "port": self.port}

    @classmethod
    def from_json(cls, value: object) -> "Endpoint":
        fields = read_object(value, "endpoint")
        return cls(
            address=read_text(fields, "address", limit=MAX_NAME, least=1),
            port=read_integer(fields, "port", low=1, high=65535),
        )


@dataclass(frozen=True, kw_only=True)
class HeartbeatRequest:
    """A member is alive. Rank 0 repeats where its store listens, so that a new operator learns it.

    `wait` is how long the answer may be held while there is nothing to tell, in seconds.
    """

    incarnation: str
    round: int
    endpoint: Endpoint | None = None
    wait: float = 0.0

    def to_json(self) -> Json:
        return {
            "incarnation": self.incarnation,
            "round": self.round,
            "endpoint": None if self.endpoint is None else self.endpoint.to_json(),
            "wait": self.wait,
        }

    @classmethod
    def from_json(cls, value: object) -> "HeartbeatRequest":
        fields = read_object(value, "body")
        endpoint = fields.get("endpoint")
        return cls(
            incarnation=read_incarnation(fields),
            round=read_round(fields),
            endpoint=None if endpoint is None else Endpoint.from_json(endpoint),
            wait=read_number(fields, "wait", low=0.0, high=MAX_WAIT_SECONDS, default=0.0),
        )


@dataclass(frozen=True, kw_only=True)
class HeartbeatAnswer:
    """What a member has to know.

    Args:
        round: The newest formed round.
        waiting: More than 0 exactly if a new round should form: stop the workers and join again.
        closed: Set once the run has ended.
        evicted: The caller is not in the newest round: stop the workers and join again.
        interval_seconds: When to call next.
    """

    round: int
    waiting: int = 0
    closed: Closed | None = None
    evicted: bool = False
    interval_seconds: float = 5.0

    @property
    def tells_nothing(self) -> bool:
        """Whether the caller has nothing to do, so that the answer may be held."""
        return not self.waiting and self.closed is None and not self.evicted

    def to_json(self) -> Json:
        return {
            "round": self.round,
            "waiting": self.waiting,
            "closed": None if self.closed is None else self.closed.to_json(),
            "evicted": self.evicted,
            "intervalSeconds": self.interval_seconds,
        }

    @classmethod
    def from_json(cls, value: object) -> "HeartbeatAnswer":
        fields = read_object(value, "answer")
        closed = fields.get("closed")
        evicted = fields.get("evicted", False)
        if not isinstance(evicted, bool):
            raise invalid("evicted", "must be true or false")
        return cls(
            round=read_round(fields),
            waiting=read_integer(fields, "waiting", low=0, high=MAX_ROUND),
            closed=None if closed is None else Closed.from_json(closed),
            evicted=evicted,
            interval_seconds=read_number(fields, "intervalSeconds", low=0.0, high=MAX_SECONDS, default=5.0),
        )


@dataclass(frozen=True, kw_only=True)
class EndpointRequest:
    """Rank 0 says where its store for one round listens."""

    incarnation: str
    endpoint: Endpoint

    def to_json(self) -> Json:
        return {"incarnation": self.incarnation, **self.endpoint.to_json()}

    @classmethod
    def from_json(cls, value: object) -> "EndpointRequest":
        fields = read_object(value, "body")
        return cls(incarnation=read_incarnation(fields), endpoint=Endpoint.from_json(fields))


class LeaveOutcome(str, Enum):
    """Why a node leaves."""

    SUCCEEDED = "succeeded"
    """Its workers have finished their work."""
    FAILED = "failed"
    """Its workers failed and it gives up."""
    LEFT = "left"
    """It was told to go, or does not know."""


@dataclass(frozen=True, kw_only=True)
class LeaveRequest:
    """A node leaves. Never closes the run."""

    incarnation: str
    round: int
    outcome: LeaveOutcome
    exit_code: int | None = None
    message: str = ""

    def to_json(self) -> Json:
        return {
            "incarnation": self.incarnation,
            "round": self.round,
            "outcome": self.outcome.value,
            "exitCode": self.exit_code,
            "message": self.message,
        }

    @classmethod
    def from_json(cls, value: object) -> "LeaveRequest":
        fields = read_object(value, "body")
        exit_code = fields.get("exitCode")
        return cls(
            incarnation=read_incarnation(fields),
            round=read_round(fields),
            outcome=read_choice(fields, "outcome", LeaveOutcome),
            exit_code=None if exit_code is None else read_integer(fields, "exitCode", low=-(2**31), high=2**31 - 1),
            message=read_text(fields, "message", limit=MAX_MESSAGE, default=""),
        )
