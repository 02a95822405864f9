"""The stored form survives a round trip; anything else is refused with the name of the object."""

import json
import pickle
import uuid
from dataclasses import replace

import pytest

from elasticjob.rendezvous.encoding import MAX_BYTES, decode, encode
from elasticjob.rendezvous.errors import RendezvousStateError
from elasticjob.rendezvous.state import Limits, Node, State, beat, close, join, remove, settle

LIMITS = Limits(min_nodes=2, max_nodes=2)
SOURCE = "ConfigMap team/digits-rendezvous"


def example() -> State:
    state = State(epoch=3, failures=2)
    for name in ("a", "b", "spare-é"):
        state = beat(join(state, Node(key=name, address="fd00::1", pid=7, name=name), LIMITS), name)
    return settle(state, LIMITS)


def of_size(count: int) -> State:
    nodes = [
        Node(
            key=str(uuid.UUID(int=i)),
            address="fd00:1234:5678:9abc::ffff",
            order=i,
            pid=1,
            name=f"a-long-job-name-{i}-0",
        )
        for i in range(count)
    ]
    return State(participants={node.key: node for node in nodes})


def test_a_state_survives_the_round_trip() -> None:
    for state in (State(), example(), remove(example(), ["a"], LIMITS), close(example(), "Failed")):
        assert decode(encode(state), source=SOURCE) == state


def test_the_order_of_ranks_survives_the_round_trip() -> None:
    state = decode(encode(example()), source=SOURCE)
    assert list(state.participants) == list(example().participants)


@pytest.mark.parametrize(("nodes", "limit"), [(10, 2_000), (1_000, 160_000), (5_000, 800_000)])
def test_a_state_stays_within_its_size_budget(nodes: int, limit: int) -> None:
    assert len(encode(of_size(nodes))) <= limit


def test_a_state_that_no_object_could_hold_is_not_encoded() -> None:
    with pytest.raises(RendezvousStateError, match=str(MAX_BYTES)):
        encode(of_size(20_000))


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("code from the state was executed",))


def tampered(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(example())), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"!!!!",
        b"abc",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        encode(example())[:-20],
        pickle.dumps(Hostile()),
        b"x" * 900 * 1024,
        b"x" * (MAX_BYTES + 1),
        tampered(version=2),
        tampered(version="1"),
        tampered(round=-1),
        tampered(round=True),
        tampered(round=1e3),
        tampered(closed=7),
        tampered(complete="yes"),
        tampered(participants={}),
        tampered(participants=[["a"]]),
        tampered(participants=[["a", "x", 0, 0, 0, "a", None]]),
        tampered(participants=[["a", "x" * 2000, 0, 0, 0, "a", 0]]),
        tampered(round=2**31),
        tampered(closed="\ud800"),
        tampered(participants=[["\ud800", "x", 0, 0, 0, "a", 0]]),
        tampered(participants=[["a", "x" * 254, 0, 0, 0, "a", 0]]),
        tampered(participants=[["a", "x\n", 0, 0, 0, "a", 0]]),
        tampered(participants=[["a", "x", 0, 0, 0, "a" * 254, 0]]),
        tampered(participants=[["a", "x", 0, 0, 0, "\ud800", 0]]),
        tampered(participants=[["a", "x", 2**31, 0, 0, "a", 0]]),
        tampered(spares=json.loads(encode(example()))["participants"]),
        tampered(previous=[["z", "x", 0, 0, 0, "z", 0]]),
    ],
    ids=lambda data: repr(data[:40]),
)
def test_anything_else_is_refused_with_the_name_of_the_object(data: bytes) -> None:
    with pytest.raises(RendezvousStateError, match=SOURCE):
        decode(data, source=SOURCE)


def test_a_newer_format_is_named_in_the_refusal() -> None:
    with pytest.raises(RendezvousStateError, match="format version is 2, this release reads 1"):
        decode(tampered(version=2), source=SOURCE)


def test_unknown_fields_are_ignored() -> None:
    assert decode(tampered(addedLater=1), source=SOURCE) == example()


def test_a_name_that_is_not_valid_unicode_cannot_spoil_the_state() -> None:
    state = replace(example(), participants={"a": Node(key="a", address="\ud800")}, spares={}, beats={})
    assert decode(encode(state), source=SOURCE).participants["a"].address == "?"
