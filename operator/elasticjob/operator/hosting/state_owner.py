"""Whose a state is that does not go with its job by itself: a line that is stored behind the state.

Several operators may keep states in one etcd under one prefix, operators of other clusters among them. So each state
there names the installation that wrote it last, by the UID of its lease, and the job that it belongs to. Nobody else
looks at the line; a state without one, or with one that cannot be read, is nobody's.
"""

import json
from dataclasses import asdict, dataclass

from elasticjob.rendezvous.backend import ErasableState, RendezvousBackend, Token

_END_OF_STATE = b"\n"
"""An encoded state is one line."""


@dataclass(frozen=True, kw_only=True)
class StateOwner:
    """Whose a state is.

    Args:
        installation: UID of the lease of the operator that wrote it.
        namespace: Namespace of the job.
        job: Name of the job.
    """

    installation: str
    namespace: str
    job: str


def with_owner(state: bytes, owner: StateOwner) -> bytes:
    """What is stored."""
    return state + _END_OF_STATE + json.dumps(asdict(owner), separators=(",", ":")).encode()


def without_owner(stored: bytes) -> bytes:
    """The state in what is stored."""
    return stored.partition(_END_OF_STATE)[0]


def owner_of(stored: bytes) -> StateOwner | None:
    """The owner in what is stored."""
    try:
        found = json.loads(stored.partition(_END_OF_STATE)[2])
        owner = StateOwner(**found)
    except (ValueError, TypeError, RecursionError):
        return None
    return owner if all(isinstance(part, str) and part for part in asdict(owner).values()) else None


class OwnedStateBackend(RendezvousBackend):
    """A backend whose stored states say whose they are; its user sees the states alone."""

    def __init__(self, backend: RendezvousBackend, owner: StateOwner) -> None:
        self._backend = backend
        self._owner = owner

    @property
    def name(self) -> str:
        """See base class."""
        return self._backend.name

    def get_state(self) -> tuple[bytes, Token] | None:
        """See base class."""
        found = self._backend.get_state()
        return None if found is None else (without_owner(found[0]), found[1])

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """See base class."""
        answer = self._backend.set_state(with_owner(state, self._owner), token)
        return None if answer is None else (without_owner(answer[0]), *answer[1:])

    def delete_state(self) -> None:
        """See `ErasableState`."""
        assert isinstance(self._backend, ErasableState)
        self._backend.delete_state()
