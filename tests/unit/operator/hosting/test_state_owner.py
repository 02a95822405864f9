"""The line behind a state that says whose it is."""

import pytest

from elasticjob.operator.hosting.state_owner import (
    OwnedStateBackend,
    StateOwner,
    owner_of,
    with_owner,
    without_owner,
)
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore
from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.state import Node, State
from tests.unit.operator.hosted import Cell

OWNER = StateOwner(installation="lease-1", namespace="train", job="digits")
ODD = Node(key="uid-0", address="line\nbreak", order=0, name="digits-0-0")


def test_a_state_and_its_owner_are_told_apart_whatever_is_in_them() -> None:
    state = encode(State(round=3, complete=True, participants={"uid-0": ODD}))
    stored = with_owner(state, OWNER)
    assert (without_owner(stored), owner_of(stored)) == (state, OWNER)


def test_a_state_without_an_owner_is_nobodys() -> None:
    state = encode(State(round=3))
    assert (without_owner(state), owner_of(state)) == (state, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[" * 100_000,
        b"null",
        b"{}",
        b'{"installation":"lease-1","namespace":"train"}',
        b'{"installation":"lease-1","namespace":"train","job":7}',
        b'{"installation":"","namespace":"train","job":"digits"}',
        b'{"installation":"lease-1","namespace":"train","job":"digits","more":"x"}',
        b"\xff",
    ],
)
def test_a_damaged_owner_is_nobody(line: bytes) -> None:
    assert owner_of(b"{}\n" + line) is None


def test_each_leader_puts_its_own_installation_behind_the_state() -> None:
    cell = Cell()
    FencedStore(OwnedStateBackend(cell, OWNER), source="a state", epoch=1).take_over()
    later = StateOwner(installation="lease-2", namespace="train", job="digits")
    store = FencedStore(OwnedStateBackend(cell, later), source="a state", epoch=2)
    taken = store.take_over()
    assert cell.value is not None
    assert (without_owner(cell.value), owner_of(cell.value)) == (encode(taken), later)


def test_a_write_that_happened_is_recognized_when_it_is_repeated() -> None:
    cell = Cell()
    store = FencedStore(OwnedStateBackend(cell, OWNER), source="a state", epoch=1)
    state = store.take_over()
    cell.overwrite(with_owner(encode(State(round=2, epoch=state.epoch)), OWNER))
    store.save(State(round=2, epoch=state.epoch))
    assert cell.writes == 1


def test_a_state_that_was_stored_without_an_owner_is_taken_over() -> None:
    cell = Cell()
    cell.overwrite(encode(State(round=5, epoch=3)))
    assert FencedStore(OwnedStateBackend(cell, OWNER), source="a state", epoch=4).take_over().round == 5
