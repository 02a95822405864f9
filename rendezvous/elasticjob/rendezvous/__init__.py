"""Rendezvous: the nodes of a run find one another and agree on who is in and who has which rank.

A run is a sequence of rounds. A node calls `next_rendezvous()` and waits until a round is complete; then every member
knows its rank, the number of nodes and where rank 0 is. While it trains it asks `num_nodes_waiting()` again and again:
more than 0 means that the round is over, because a node left, was lost or wants to come in, and that it must call
`next_rendezvous()` again.

Two ways to run it share one state machine (`state`). The operator hosts the rendezvous of its jobs (`client` is the
worker's end of it). Without an operator the nodes agree among themselves over a backend that keeps one value by
compare-and-set (`dynamic_rendezvous`).

Names and signatures are those of `torch.distributed.elastic.rendezvous`; only the standard library is needed.
"""

from elasticjob.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)

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
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]
