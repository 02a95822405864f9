"""Wire types of the hosted rendezvous: what a worker and the operator send each other, version 1.

JSON over HTTP. Both ends use these types, so that a field has one name, one meaning and one bound. Parsing is strict
about what it knows (type, range, length) and silent about what it does not (an unknown field is ignored), so a newer
end may add fields without a new version. Whatever does not parse raises `ProtocolError` with the code `invalid` and
names the field; nothing else escapes, whatever the bytes are. No I/O, standard library only.

`docs/protocol.md` describes the calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from elasticjob.rendezvous.wire import (
    MAX_ANSWER_BYTES,
    MAX_MESSAGE,
    MAX_NAME,
    Closed,
    ErrorCode,
    Json,
    ProtocolError,
    dumps,
    invalid,
    loads,
    parse,
    read_choice,
    read_integer,
    read_number,
    read_object,
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
MAX_WAIT_SECONDS = 30.0
"""Longest time that a long poll is held."""
MAX_ROUND = 2**31 - 1
MAX_INCARNATION = 64


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How the worker processes of a node failed."""

    exit_code: int
    message: str = ""

    def to_json(self) -> Json:
        return {"exitCode": self.exit_code, "message": self.message}

    @classmethod
    def from_json(cls, value: object) -> "Failure":
        fields = read_object(value, "failure")
        return cls(
            exit_code=read_integer(fields, "exitCode", low=-(2**31), high=2**31 - 1),
            message=read_text(fields, "message", limit=MAX_MESSAGE, default=""),
        )


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
class JoinRequest:
    """A node wants to be in the next round.

    Args:
        incarnation: Random for each agent process; another one from the same pod replaces the earlier.
        round: The last round that this agent was told, 0 if none. It tells a repeated call, whose answer was lost
            (older than the newest round), from the wish for another round (equal to it).
        failure: Set if the agent re-joins since its workers failed.
        wait: How long the answer may take, in seconds.
    """

    incarnation: str
    address: str
    pid: int
    round: int = 0
    failure: Failure | None = None
    wait: float = 20.0

    def to_json(self) -> Json:
        return {
            "incarnation": self.incarnation,
            "address": self.address,
            "pid": self.pid,
            "round": self.round,
            "failure": None if self.failure is None else self.failure.to_json(),
            "wait": self.wait,
        }

    @classmethod
    def from_json(cls, value: object) -> "JoinRequest":
        fields = read_object(value, "body")
        failure = fields.get("failure")
        return cls(
            incarnation=_incarnation(fields),
            address=read_text(fields, "address", limit=MAX_NAME, least=1),
            pid=read_integer(fields, "pid", low=0, high=2**31 - 1),
            round=_round(fields),
            failure=None if failure is None else Failure.from_json(failure),
            wait=read_number(fields, "wait", low=0.0, high=MAX_WAIT_SECONDS, default=20.0),
        )


@dataclass(frozen=True, kw_only=True)
class Member:
    """A node of a formed round."""

    rank: int
    index: int
    pod: str
    address: str

    def to_json(self) -> Json:
        return {"rank": self.rank, "index": self.index, "pod": self.pod, "address": self.address}

    @classmethod
    def from_json(cls, value: object) -> "Member":
        fields = read_object(value, "member")
        return cls(
            rank=read_integer(fields, "rank", low=0, high=MAX_ROUND),
            index=read_integer(fields, "index", low=0, high=MAX_ROUND),
            pod=read_text(fields, "pod", limit=MAX_NAME),
            address=read_text(fields, "address", limit=MAX_NAME),
        )


@dataclass(frozen=True, kw_only=True)
class JoinFormed:
    """The round is formed and the caller is in it."""

    round: int
    rank: int
    members: tuple[Member, ...]

    @property
    def world_size(self) -> int:
        return len(self.members)

    def to_json(self) -> Json:
        return {
            "state": "formed",
            "round": self.round,
            "rank": self.rank,
            "worldSize": self.world_size,
            "members": [member.to_json() for member in self.members],
        }


@dataclass(frozen=True, kw_only=True)
class JoinWaiting:
    """The caller has joined, the round is not formed yet: call again.

    `deadline_seconds` is the time until the round completes (last call) or fails (join time-out), if one runs.
    """

    joined: int
    expected: int
    min_nodes: int
    deadline_seconds: float | None = None
    message: str = ""

    def to_json(self) -> Json:
        return {
            "state": "waiting",
            "joined": self.joined,
            "expected": self.expected,
            "min": self.min_nodes,
            "deadlineSeconds": self.deadline_seconds,
            "message": self.message,
        }


JoinAnswer: TypeAlias = JoinFormed | JoinWaiting


def join_answer_from_json(value: object) -> JoinAnswer:
    """Read the answer to a join.

    Raises:
        ProtocolError: `invalid`, also if ranks are not 0..n-1, once each and in order.
    """
    fields = read_object(value, "answer")
    state = read_text(fields, "state", limit=32)
    if state == "formed":
        return _formed(fields)
    if state != "waiting":
        raise invalid("state", "must be 'formed' or 'waiting'")
    deadline = fields.get("deadlineSeconds")
    return JoinWaiting(
        joined=read_integer(fields, "joined", low=0, high=MAX_ROUND),
        expected=read_integer(fields, "expected", low=0, high=MAX_ROUND),
        min_nodes=read_integer(fields, "min", low=0, high=MAX_ROUND),
        deadline_seconds=None if deadline is None else read_number(fields, "deadlineSeconds", low=0.0, high=1e9),
        message=read_text(fields, "message", limit=MAX_ANSWER_BYTES, default=""),
    )


def _formed(fields: Mapping[str, Any]) -> JoinFormed:
    members = fields.get("members")
    if not isinstance(members, list):
        raise invalid("members", "must be a list")
    answer = JoinFormed(
        round=read_integer(fields, "round", low=1, high=MAX_ROUND),
        rank=read_integer(fields, "rank", low=0, high=MAX_ROUND),
        members=tuple(Member.from_json(member) for member in members),
    )
    if [member.rank for member in answer.members] != list(range(len(answer.members))):
        raise invalid("members", "must have the ranks 0..n-1 in order")
    if answer.rank >= answer.world_size:
        raise invalid("rank", "must be the rank of a member")
    return answer


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
            incarnation=_incarnation(fields),
            round=_round(fields),
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
            round=_round(fields),
            waiting=read_integer(fields, "waiting", low=0, high=MAX_ROUND),
            closed=None if closed is None else Closed.from_json(closed),
            evicted=evicted,
            interval_seconds=read_number(fields, "intervalSeconds", low=0.0, high=1e6, default=5.0),
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
        return cls(incarnation=_incarnation(fields), endpoint=Endpoint.from_json(fields))


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
            incarnation=_incarnation(fields),
            round=_round(fields),
            outcome=read_choice(fields, "outcome", LeaveOutcome),
            exit_code=None if exit_code is None else read_integer(fields, "exitCode", low=-(2**31), high=2**31 - 1),
            message=read_text(fields, "message", limit=MAX_MESSAGE, default=""),
        )


def _incarnation(fields: Mapping[str, Any]) -> str:
    return read_text(fields, "incarnation", limit=MAX_INCARNATION, least=1)


def _round(fields: Mapping[str, Any]) -> int:
    return read_integer(fields, "round", low=0, high=MAX_ROUND)
