"""A state store with exact compare-and-set semantics, whose answers can be lost."""

import random

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.state import State


class Cell:
    """What is stored, and everything that ever was. Checks on each write what must hold for all time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.value: bytes | None = None
        self.version = 0
        self.history: list[State] = []
        self.fault_rate = 0.0

    def write(self, data: bytes) -> None:
        state = decode(data, source="the cell")
        if self.history:
            last = self.history[-1]
            assert state.epoch >= last.epoch, f"epoch {state.epoch} was written after {last.epoch}"
            assert state.round >= last.round, f"round {state.round} was written after {last.round}"
            assert last.closed is None or state.closed == last.closed, "a closed run was opened again"
        self.value, self.version = data, self.version + 1
        self.history.append(state)

    @property
    def rounds(self) -> dict[int, State]:
        """The formed rounds that were ever stored, by number."""
        return {state.round: state for state in self.history if state.complete}


class FaultyBackend(RendezvousBackend):
    """One client of a cell. A call may fail before or after it took effect."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    @property
    def name(self) -> str:
        return "simulated"

    def get_state(self) -> tuple[bytes, Token] | None:
        self._may_fail()
        return self._current()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        self._may_fail()
        current = self._current()
        if token != (None if current is None else current[1]):
            return None if current is None else (*current, False)
        self._cell.write(state)
        self._may_fail()
        return state, self._cell.version, True

    def _current(self) -> tuple[bytes, Token] | None:
        return None if self._cell.value is None else (self._cell.value, self._cell.version)

    def _may_fail(self) -> None:
        if self._cell.rng.random() < self._cell.fault_rate:
            raise RendezvousConnectionError("the connection broke")
