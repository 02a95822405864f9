"""The round of the legacy etcd rendezvous as a value, and the steps from one to the next. Pure.

A round goes through *setup* → *joinable* → *frozen* → *final*; *closed* can follow on any of them and ends the run.

- setup: somebody prepares a new version. Lives only seconds, so that a creator that dies is replaced.
- joinable: nodes append themselves. Once the minimum has joined it must be kept alive by the node that times the last
  call; with the maximum it freezes at once.
- frozen: the members are fixed and each confirms, or the round expires.
- final: all have confirmed. It ends when a member is lost, leaves or comes back, or when nodes wait that fit in.

A node is named by a random id, so that joining twice (after an answer was lost) has no effect. Ranks are the order of
arrival.
"""

import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Status(str, Enum):
    """What a round is doing; the values are those of torch elastic."""

    SETUP = "setup"
    JOINABLE = "joinable"
    FROZEN = "frozen"
    FINAL = "final"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round. `participants` are node ids by rank; `confirmed` are those that have confirmed."""

    status: Status
    version: int = 0
    participants: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()


def encode(current: Round) -> str:
    """The stored form."""
    return json.dumps(
        {
            "status": current.status.value,
            "version": current.version,
            "participants": list(current.participants),
            "keep_alives": list(current.confirmed),
        }
    )


def decode(text: str | None) -> Round:
    """Read the stored form.

    Raises:
        ValueError: It is anything else.
    """
    try:
        data = json.loads(text or "null")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, found {type(data).__name__}")  # noqa: TRY004 - bad data, not a bad call
    version = data.get("version", 0)
    if not isinstance(version, int) or version < 0:
        raise ValueError(f"version must be a whole number, not {version!r}")
    return Round(
        status=Status(data.get("status")),
        version=version,
        participants=_names(data, "participants"),
        confirmed=_names(data, "keep_alives"),
    )


def _names(data: dict[str, Any], key: str) -> tuple[str, ...]:
    names = data.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} must be a list of strings")
    return tuple(names)


def joined(current: Round, node: str, *, maximum: int) -> Round:
    """A joinable round with one more node; with the last that fits it freezes."""
    if node in current.participants:
        return current
    members = (*current.participants, node)
    status = Status.FROZEN if len(members) >= maximum else Status.JOINABLE
    return replace(current, participants=members, status=status)


def left(current: Round, node: str) -> Round:
    """A joinable round without a node."""
    return replace(current, participants=tuple(name for name in current.participants if name != node))


def frozen(current: Round) -> Round:
    """A joinable round whose last call is over."""
    return replace(current, status=Status.FROZEN)


def confirmed(current: Round, node: str) -> Round:
    """A frozen round that one more member has confirmed; with the last it is final."""
    names = current.confirmed if node in current.confirmed else (*current.confirmed, node)
    complete = set(names) >= set(current.participants)
    return replace(current, confirmed=names, status=Status.FINAL if complete else Status.FROZEN)


def closed(current: Round | None) -> Round:
    """The end of the run."""
    return replace(current or Round(status=Status.CLOSED), status=Status.CLOSED)


def times_last_call(current: Round, node: str, *, minimum: int) -> bool:
    """Whether a node has to keep a joinable round alive and to freeze it: the one that made the minimum full."""
    members = current.participants
    return current.status is Status.JOINABLE and len(members) >= minimum and members[minimum - 1] == node


def admissible(current: Round, waiting: int, *, maximum: int) -> int:
    """How many of the waiting nodes a new round would admit."""
    return max(0, min(waiting, maximum - len(current.participants)))
