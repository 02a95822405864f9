"""The contract of a state backend: one opaque value, guarded by a fencing token.

Everything that is ever stored about a run is one value of bytes. A backend reads it and replaces it by
compare-and-set; it never looks inside, never merges and never retries a lost race. What the bytes mean is the
business of `elasticjob.rendezvous.state`.
"""

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias, runtime_checkable

Token: TypeAlias = Any
"""Opaque fencing token. Only ever compared for equality, and only by the backend that made it."""


class RendezvousBackend(ABC):
    """Holds the state of one rendezvous."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the backend, as used in the registry."""

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """Read the state.

        Returns:
            The encoded state and its fencing token, or None if the backend holds no state.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
            RendezvousStateError: The stored state is corrupt.
        """

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Replace the state if `token` is still the token of the stored state.

        - The token matches: the state is replaced; the new state and its new token are returned.
        - The token does not match: nothing is changed; the stored state and its token are returned.
        - The token is None: the state is written only if the backend holds none; whichever state is then stored
          is returned with its token.

        Args:
            state: The encoded state.
            token: Fencing token from an earlier `get_state()` or `set_state()`.

        Returns:
            The state that is now stored, its fencing token, and whether this call stored it.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
            RendezvousStateError: The stored state is corrupt.
        """


@runtime_checkable
class ErasableState(Protocol):
    """What a backend also has if nobody but its user can remove the state of a run that is over."""

    def delete_state(self) -> None:
        """Remove the state. It is no error if there is none.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
        """
