"""Rendezvous handlers by the name of their backend.

The global registry also knows, without being told, every state backend of `elasticjob.rendezvous.backends` and of its
entry point group: such a name stands for a `DynamicRendezvousHandler` over that backend. A backend's module is imported
when its name is first asked for.
"""

from collections.abc import Callable
from typing import TypeAlias

from elasticjob.rendezvous.handler import RendezvousHandler
from elasticjob.rendezvous.parameters import RendezvousParameters

__all__ = ["get_rendezvous_handler"]

RendezvousHandlerCreator: TypeAlias = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Creators of handlers, by the name of the backend."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Add a backend. To add the same again is harmless.

        Raises:
            ValueError: The backend has no name, or its name is taken by another creator.
        """
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        current = self._registry.setdefault(backend, creator)
        if current != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it "
                f"is already registered with '{current}'."
            )

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """Create a handler for the backend that the parameters name.

        Raises:
            ValueError: The backend is not known, or the parameters cannot be used.
            RuntimeError: The creator made a handler for another backend.
        """
        creator = self._registry.get(params.backend) or self._find(params.backend)
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested "
                f"backend '{params.backend}'."
            )
        return handler

    def _find(self, backend: str) -> RendezvousHandlerCreator:
        raise ValueError(f"The rendezvous backend '{backend}' is not registered. Did you forget to call `register`?")


class _GlobalRegistry(RendezvousHandlerRegistry):
    def _find(self, backend: str) -> RendezvousHandlerCreator:
        from elasticjob.rendezvous.backends import backend_names

        if backend not in backend_names():
            return super()._find(backend)
        self.register(backend, _create_dynamic_handler)
        return _create_dynamic_handler


def _create_dynamic_handler(params: RendezvousParameters) -> RendezvousHandler:
    from elasticjob.rendezvous.backends import create_backend
    from elasticjob.rendezvous.dynamic_rendezvous import create_handler

    backend, store = create_backend(params.backend, params)
    return create_handler(store, backend, params)


rendezvous_handler_registry: RendezvousHandlerRegistry = _GlobalRegistry()
"""The registry that launchers use."""


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Create a handler by the global registry; see `RendezvousHandlerRegistry.create_handler`."""
    return rendezvous_handler_registry.create_handler(params)
