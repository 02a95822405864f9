"""The fenced store: who may write, and how a write whose answer was lost is recognized."""

from dataclasses import replace

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.coordinator.fenced_store import FencedStore, LeadershipLostError
from elasticjob.rendezvous.encoding import decode, encode
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.state import State


class Cell(RendezvousBackend):
    """State in memory. `loses` says how many of the next answers are lost after the write was made."""

    def __init__(self, value: bytes | None = None) -> None:
        self.value = value
        self.version = 0
        self.loses = 0

    @property
    def name(self) -> str:
        return "cell"

    def get_state(self) -> tuple[bytes, Token] | None:
        return None if self.value is None else (self.value, self.version)

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        current = self.get_state()
        if token != (None if current is None else current[1]):
            return None if current is None else (*current, False)
        self.value, self.version = state, self.version + 1
        if self.loses:
            self.loses -= 1
            raise RendezvousConnectionError("the answer was lost")
        return state, self.version, True

    @property
    def state(self) -> State:
        assert self.value is not None
        return decode(self.value, source="test")


def store(cell: Cell, epoch: int = 5) -> FencedStore:
    return FencedStore(cell, source="ConfigMap train/digits-rendezvous", epoch=epoch)


def test_a_first_leader_stores_its_epoch_before_anything_else() -> None:
    cell = Cell()
    assert store(cell).take_over() == cell.state == State(round=1, epoch=5)


def test_a_new_leader_keeps_everything_but_the_epoch() -> None:
    cell = Cell(encode(State(round=7, epoch=4, failures=2)))
    assert store(cell).take_over() == cell.state == State(round=7, epoch=5, failures=2)


def test_an_old_leader_cannot_take_over_or_write() -> None:
    cell = Cell()
    old, new = store(cell, 5), store(cell, 6)
    state = old.take_over()
    new.take_over()
    with pytest.raises(LeadershipLostError, match="belongs to epoch 6, ours is 5"):
        old.save(replace(state, round=2))
    with pytest.raises(LeadershipLostError):
        store(cell, 5).take_over()
    with pytest.raises(LeadershipLostError):
        old.verify()
    assert cell.state == State(round=1, epoch=6)


def test_a_write_whose_answer_was_lost_is_recognized_when_it_is_repeated() -> None:
    cell = Cell()
    mine = store(cell)
    state = replace(mine.take_over(), round=2)
    cell.loses = 1
    with pytest.raises(RendezvousConnectionError):
        mine.save(state)
    mine.verify()
    version = cell.version
    mine.save(state)
    assert cell.version == version
    mine.save(replace(state, round=3))
    assert cell.state.round == 3


def test_taking_over_may_be_repeated_after_its_answer_was_lost() -> None:
    cell = Cell()
    cell.loses = 1
    mine = store(cell)
    with pytest.raises(RendezvousConnectionError):
        mine.take_over()
    assert mine.take_over() == State(round=1, epoch=5)


def test_metadata_that_changes_under_the_state_does_not_stop_its_leader() -> None:
    cell = Cell()
    mine = store(cell)
    state = mine.take_over()
    cell.version += 1
    mine.save(replace(state, round=2))
    assert cell.state.round == 2


def test_a_state_that_was_set_back_is_written_again_by_its_leader() -> None:
    cell = Cell()
    mine = store(cell)
    state = mine.take_over()
    cell.value, cell.version = encode(State(round=1, epoch=3)), cell.version + 1
    mine.save(replace(state, round=2))
    assert cell.state == State(round=2, epoch=5)


def test_a_state_that_was_deleted_is_written_again_by_its_leader() -> None:
    cell = Cell()
    mine = store(cell)
    state = mine.take_over()
    cell.value = None
    mine.save(replace(state, round=9))
    assert cell.state.round == 9


def test_another_writer_with_our_epoch_is_not_overwritten() -> None:
    cell = Cell()
    mine = store(cell)
    state = mine.take_over()
    cell.value, cell.version = encode(State(round=4, epoch=5)), cell.version + 1
    with pytest.raises(RendezvousStateError, match="changed by somebody who does not lead"):
        mine.save(replace(state, round=2))
    assert cell.state.round == 4


def test_a_corrupt_state_is_named_and_left_as_it_is() -> None:
    cell = Cell(b"!!!!")
    with pytest.raises(RendezvousStateError, match="ConfigMap train/digits-rendezvous"):
        store(cell).take_over()
    assert cell.value == b"!!!!"
    cell = Cell()
    mine = store(cell)
    state = mine.take_over()
    cell.value, cell.version = b"!!!!", cell.version + 1
    with pytest.raises(RendezvousStateError):
        mine.save(replace(state, round=2))
    with pytest.raises(RendezvousStateError):
        mine.verify()
    assert cell.value == b"!!!!"


class ErasableCell(Cell):
    def delete_state(self) -> None:
        self.value = None


def test_a_state_is_erased_where_nobody_else_does() -> None:
    cell = ErasableCell(encode(State(round=2)))
    store = FencedStore(cell, source="cell", epoch=1)
    assert store.is_erasable
    store.erase()
    assert cell.value is None


def test_a_state_that_goes_with_its_job_is_left_alone() -> None:
    cell = Cell(encode(State(round=2)))
    store = FencedStore(cell, source="cell", epoch=1)
    assert not store.is_erasable
    store.erase()
    assert cell.value is not None
