"""State backends by name.

A backend is a module with `create_backend(params) -> (RendezvousBackend, Store)`. The built-in ones are always known;
others register in the entry point group `elasticjob.rendezvous.backends`. A module is imported when its backend is
first asked for, so that a worker pays for, and needs, only what it uses.
"""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from elasticjob.rendezvous.backend import RendezvousBackend
    from elasticjob.rendezvous.parameters import RendezvousParameters
    from elasticjob.rendezvous.store import Store

BackendCreator: TypeAlias = "Callable[[RendezvousParameters], tuple[RendezvousBackend, Store]]"

ENTRY_POINT_GROUP = "elasticjob.rendezvous.backends"

# Known without the distribution's metadata as well: worker pods get the bare files.
_BUILT_IN = {
    "memory": "elasticjob.rendezvous.backends.memory",
    "kubernetes": "elasticjob.rendezvous.backends.kubernetes",
    "etcd": "elasticjob.rendezvous.backends.etcd",
    "etcd-v2": "elasticjob.rendezvous.backends.etcd_v2",
}


def backend_names() -> list[str]:
    """The names of all backends that can be asked for, sorted."""
    registered = {entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return sorted(registered | _BUILT_IN.keys())


def get_backend_creator(name: str) -> BackendCreator:
    """The `create_backend` of a backend.

    Raises:
        ValueError: There is no backend of this name.
    """
    module = _BUILT_IN.get(name)
    if module is not None:
        return cast(BackendCreator, importlib.import_module(module).create_backend)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        return cast(BackendCreator, entry.load())
    raise ValueError(f"there is no rendezvous backend {name!r}; known are {', '.join(backend_names())}")


def create_backend(name: str, params: "RendezvousParameters") -> "tuple[RendezvousBackend, Store]":
    """Make a backend and the store that goes with it.

    Args:
        name: The name of the backend, which may differ from `params.backend`.
        params: Endpoint, run id and the options of this backend.

    Raises:
        ValueError: The backend is unknown or an option cannot be used.
        ModuleNotFoundError: A package is missing; the message says what to install.
    """
    return get_backend_creator(name)(params)
