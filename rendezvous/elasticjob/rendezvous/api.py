"""The public interface of the rendezvous, under the names of `torch.distributed.elastic.rendezvous.api`."""

from elasticjob.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.handler import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.registry import (
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    rendezvous_handler_registry,
)
from elasticjob.rendezvous.settings import RendezvousSettings, RendezvousTimeout
from elasticjob.rendezvous.utils import parse_rendezvous_endpoint

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousSettings",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeout",
    "RendezvousTimeoutError",
    "parse_rendezvous_endpoint",
    "rendezvous_handler_registry",
]
