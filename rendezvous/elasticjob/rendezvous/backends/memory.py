"""The state of a run in the memory of this process, for tests and for runs on one machine.

Backends that are created with the same endpoint and run id share one state; it is gone with the last of them. The
token is the identity of that state and a version, so that no token of an earlier life fits a later one.
"""

import threading
import uuid
import weakref
from dataclasses import dataclass

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends.keys import check_run_id
from elasticjob.rendezvous.backends.values import check_new_state, check_stored_state
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import InMemoryStore, Store


@dataclass(frozen=True, kw_only=True)
class MemoryToken:
    """Fencing token of a state in memory."""

    space: str
    version: int


class MemorySpace(InMemoryStore):
    """What the nodes of one run share: the state and, being one itself, the store."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = check_run_id(run_id)
        self.lock = threading.Lock()
        self.state: bytes | None = None
        self.identity = uuid.uuid4().hex
        self.version = 0

    def token(self) -> MemoryToken:
        """The token of the current state."""
        return MemoryToken(space=self.identity, version=self.version)


class MemoryRendezvousBackend(RendezvousBackend):
    """Holds the state in a `MemorySpace`."""

    def __init__(self, space: MemorySpace) -> None:
        self._space = space
        self._where = f"the state of run {space.run_id!r} in memory"

    @property
    def name(self) -> str:
        """See base class."""
        return "memory"

    def get_state(self) -> tuple[bytes, Token] | None:
        """See base class."""
        with self._space.lock:
            return self._current()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See base class."""
        check_new_state(state, where=self._where)
        space = self._space
        with space.lock:
            stored = self._current()
            if token == (None if stored is None else stored[1]):
                space.state = state
                space.version += 1
                return state, space.token(), True
            return None if stored is None else (*stored, False)

    def _current(self) -> tuple[bytes, MemoryToken] | None:
        if self._space.state is None:
            return None
        return check_stored_state(self._space.state, where=self._where), self._space.token()


_spaces: "weakref.WeakValueDictionary[tuple[str, str], MemorySpace]" = weakref.WeakValueDictionary()
_spaces_lock = threading.Lock()


def create_backend(params: RendezvousParameters) -> tuple[MemoryRendezvousBackend, Store]:
    """Make a backend that shares its state with all others of this process that have its endpoint and run id.

    Raises:
        ValueError: The run id cannot be used.
    """
    with _spaces_lock:
        key = (params.endpoint, params.run_id)
        space = _spaces.get(key)
        if space is None:
            space = _spaces[key] = MemorySpace(params.run_id)
    return MemoryRendezvousBackend(space), space
