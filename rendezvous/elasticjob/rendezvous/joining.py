"""Wire types of joining a round; part of `elasticjob.rendezvous.protocol`, which everybody imports them from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from elasticjob.rendezvous.wire import (
    MAX_ANSWER_BYTES,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_ROUND,
    MAX_SECONDS,
    MAX_WAIT_SECONDS,
    Json,
    invalid,
    read_incarnation,
    read_integer,
    read_number,
    read_object,
    read_round,
    read_text,
)


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
            incarnation=read_incarnation(fields),
            address=read_text(fields, "address", limit=MAX_NAME, least=1),
            pid=read_integer(fields, "pid", low=0, high=2**31 - 1),
            round=read_round(fields),
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
        deadline_seconds=None
        if deadline is None
        else read_number(fields, "deadlineSeconds", low=0.0, high=MAX_SECONDS),
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
