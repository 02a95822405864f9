"""The stored form of a rendezvous state: one line of JSON with a format version.

Whoever can write to the backend can write anything, so decoding trusts nothing: it bounds the size, checks each type,
the invariants of the state and that its rounds and nodes can be told to workers, and never executes or guesses. A state
of a newer format is refused rather than misread. Nodes are stored as short arrays: 1,000 of them stay below 160 KB,
5,000 below the 1 MiB of a ConfigMap.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from elasticjob.rendezvous.errors import RendezvousStateError
from elasticjob.rendezvous.state import Node, State
from elasticjob.rendezvous.wire import MAX_NAME, MAX_ROUND, SURROGATE

FORMAT_VERSION = 1
MAX_BYTES = 1_000_000
"""Largest encoded state, in bytes: what fits into a ConfigMap beside its metadata."""
MAX_TEXT = 1024
"""Longest key or reason, in characters. Addresses and names have at most as many as may travel to workers."""

_ROLES = ("participants", "previous", "spares")


def encode(state: State) -> bytes:
    """Encode the state.

    Raises:
        RendezvousStateError: It has more than `MAX_BYTES` bytes.
    """
    document = {
        "version": FORMAT_VERSION,
        "round": state.round,
        "complete": state.complete,
        "closed": state.closed,
        "rejoined": state.rejoined,
        "lastCall": state.last_call,
        "lastCalls": state.last_calls,
        "epoch": state.epoch,
        "failures": state.failures,
        **{role: [_row(node, state) for node in getattr(state, role).values()] for role in _ROLES},
    }
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise RendezvousStateError(f"the rendezvous state has {len(data)} bytes, the limit is {MAX_BYTES}")
    return data


def decode(data: bytes, *, source: str) -> State:
    """Decode what `encode` has made.

    Args:
        data: The stored bytes.
        source: Names the object that holds them, for the error message.

    Raises:
        RendezvousStateError: The data is too large, is not a state, breaks an invariant or has a newer format.
    """
    if len(data) > MAX_BYTES:
        raise RendezvousStateError(f"{source} holds {len(data)} bytes, the limit is {MAX_BYTES}")
    try:
        document = json.loads(data)
        return _state(_mapping(document))
    except (ValueError, RecursionError) as error:
        raise RendezvousStateError(f"{source} holds no rendezvous state: {_brief(error)}") from error


def _row(node: Node, state: State) -> list[str | int]:
    beat = state.beats.get(node.key, 0)
    return [node.key, node.address, node.order, node.pid, node.local_id, node.name, beat]


def _state(document: Mapping[str, object]) -> State:
    version = _integer(document.get("version"), "version")
    if version != FORMAT_VERSION:
        raise ValueError(f"its format version is {version}, this release reads {FORMAT_VERSION}")
    rows = {role: [_node(row) for row in _list(document.get(role), role)] for role in _ROLES}
    nodes = {role: {node.key: node for node, _ in pairs} for role, pairs in rows.items()}
    if len(set().union(*nodes.values())) != sum(map(len, rows.values())):
        raise ValueError("a node is listed more than once")
    if document.get("complete") is True and nodes["previous"]:
        raise ValueError("a complete round has previous members")
    closed, last_call = document.get("closed"), document.get("lastCall")
    return State(
        round=_integer(document.get("round"), "round", most=MAX_ROUND),
        complete=_boolean(document.get("complete"), "complete"),
        closed=None if closed is None else _text(closed, "closed"),
        rejoined=_boolean(document.get("rejoined"), "rejoined"),
        last_call=None if last_call is None else _integer(last_call, "lastCall"),
        last_calls=_integer(document.get("lastCalls"), "lastCalls"),
        epoch=_integer(document.get("epoch"), "epoch"),
        failures=_integer(document.get("failures"), "failures"),
        beats=MappingProxyType({node.key: beat for pairs in rows.values() for node, beat in pairs if beat}),
        **{role: MappingProxyType(by_key) for role, by_key in nodes.items()},
    )


def _node(row: object) -> tuple[Node, int]:
    if not isinstance(row, list) or len(row) != 7:
        raise ValueError("a node is not an array of 7 values")
    key, address, order, pid, local_id, name, beat = row
    node = Node(
        key=_text(key, "key"),
        address=_name(address, "address"),
        order=_integer(order, "order", most=MAX_ROUND),
        pid=_integer(pid, "pid"),
        local_id=_integer(local_id, "local_id"),
        name=_name(name, "name"),
    )
    return node, _integer(beat, "beat")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else _refuse("the document", value)


def _list(value: object, name: str) -> list[object]:
    return value if isinstance(value, list) else _refuse(name, value)


def _integer(value: object, name: str, *, most: int = 2**63 - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        _refuse(name, value)
    return value


def _boolean(value: object, name: str) -> bool:
    return value if isinstance(value, bool) else _refuse(name, value)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or SURROGATE.search(value):
        _refuse(name, value)
    return value


def _name(value: object, name: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME or not value.isprintable():
        _refuse(name, value)
    return value


def _refuse(name: str, value: object) -> NoReturn:
    raise ValueError(f"{name} is {_brief(repr(value))}")


def _brief(text: object) -> str:
    brief = str(text)
    return brief if len(brief) <= 200 else brief[:200] + "…"
