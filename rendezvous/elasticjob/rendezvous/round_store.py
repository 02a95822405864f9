"""The store of one round: a part of the store of the run that the members of other rounds never see."""

import sys
from typing import Any

from elasticjob.rendezvous.store import PrefixStore, Store


class _NamedKeys:
    """A view of a store that only shares the method names of ours; every key gets a prefix."""

    def __init__(self, prefix: str, store: Any) -> None:  # noqa: ANN401 - duck-typed
        self._prefix = prefix
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    @property
    def underlying_store(self) -> Any:  # noqa: ANN401
        return self._store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        value: bytes = self._store.get(f"{self._prefix}/{key}")
        return value


def round_store(store: Any, run_id: str, round: int) -> Any:  # noqa: ANN401 - also stores of torch
    """The part of `store` that belongs to a round. Its prefix is that of torch elastic."""
    prefix = f"torch.rendezvous.{run_id}.{round}"
    if isinstance(store, Store):
        return PrefixStore(prefix, store)
    # Only a view that torch itself makes can be handed to its process groups. Whoever has such a store has torch.
    c10d = sys.modules.get("torch.distributed")
    if c10d is not None and isinstance(store, c10d.Store):
        return c10d.PrefixStore(prefix, store)
    return _NamedKeys(prefix, store)
