"""Keeps the state of one run in a backend such that only the newest leader can write it.

The state carries the epoch of its writer. A new leader first takes over: it replaces the stored state by the same one
with its own epoch, by compare-and-set, which invalidates the fencing token of whoever wrote before. From then on each
write of the old leader fails. A later epoch in a state always refuses a write, but it only hints at a later leader:
whoever can write the object can write any number there.

A write whose answer was lost may have happened. `save` may therefore be repeated with the same state until it returns:
it recognizes its own earlier write. Blocking; one thread at a time.
"""

from dataclasses import replace

from elasticjob.rendezvous.backend import ErasableState, RendezvousBackend, Token
from elasticjob.rendezvous.encoding import decode, encode
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.state import State

_ATTEMPTS = 5
"""How often a lost race is taken up at once; beyond that the caller's pause between attempts is better."""


class LeadershipLostError(Exception):
    """The state has a newer epoch. Nothing may be answered any more, unless that epoch was never given out."""

    def __init__(self, source: str, *, epoch: int, ours: int) -> None:
        super().__init__(f"{source} belongs to epoch {epoch}, ours is {ours}")
        self.if_foreign = f"{source} belongs to epoch {epoch}, which was never given out"


class FencedStore:
    """The stored state of one run, as its leader sees it.

    Args:
        source: Names the stored object in error messages.
        epoch: The fencing epoch of this leader.
    """

    def __init__(self, backend: RendezvousBackend, *, source: str, epoch: int) -> None:
        self._backend = backend
        self._source = source
        self._epoch = epoch
        self._token: Token | None = None
        self._stored = b""

    def take_over(self) -> State:
        """Put this leader's epoch into the stored state, or store a first one. Returns what is stored then.

        Raises:
            LeadershipLostError: The stored state has a newer epoch.
            RendezvousStateError: The stored state is corrupt; it is left as it is.
            RendezvousConnectionError: The backend cannot be reached, or the race was lost again and again.
        """
        found = self._backend.get_state()
        for _ in range(_ATTEMPTS):
            state = State(round=1) if found is None else self._decode(found[0])
            owned = replace(state, epoch=self._epoch)
            data = encode(owned)
            answer = self._backend.set_state(data, None if found is None else found[1])
            if answer is not None and answer[0] == data:
                self._stored, self._token = data, answer[1]
                return owned
            found = None if answer is None else (answer[0], answer[1])
        raise RendezvousConnectionError(f"{self._source} is changed by somebody else all the time")

    def save(self, state: State) -> None:
        """Replace the stored state.

        Raises:
            LeadershipLostError: The stored state has a newer epoch.
            RendezvousStateError: The stored state is corrupt or was changed by a stranger, or this one is too large.
            RendezvousConnectionError: Whether it was stored is not known; repeat with the same state.
        """
        data = encode(state)
        for _ in range(_ATTEMPTS):
            answer = self._backend.set_state(data, self._token)
            if answer is None:
                self._token = None
                continue
            stored, token, _ = answer
            if stored == data:
                self._stored, self._token = data, token
                return
            self._check_owner(stored)
            self._token = token
        raise RendezvousConnectionError(f"{self._source} is changed by somebody else all the time")

    def verify(self) -> None:
        """Check that this leader still owns the stored state.

        Raises:
            LeadershipLostError: The stored state has a newer epoch.
            RendezvousStateError: The stored state is corrupt.
            RendezvousConnectionError: The backend cannot be reached.
        """
        found = self._backend.get_state()
        if found is not None:
            self._decode(found[0])

    def erase(self) -> None:
        """Remove what is stored, where nobody else sees to that.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
        """
        if isinstance(self._backend, ErasableState):
            self._backend.delete_state()

    @property
    def is_erasable(self) -> bool:
        """Whether the state stays behind unless it is erased."""
        return isinstance(self._backend, ErasableState)

    def _check_owner(self, stored: bytes) -> None:
        """Metadata of the object may change under us; its content may not, except by a newer leader."""
        if stored == self._stored:
            return
        if self._decode(stored).epoch == self._epoch:
            raise RendezvousStateError(f"{self._source} was changed by somebody who does not lead")

    def _decode(self, data: bytes) -> State:
        state = decode(data, source=self._source)
        if state.epoch > self._epoch:
            raise LeadershipLostError(self._source, epoch=state.epoch, ours=self._epoch)
        return state
