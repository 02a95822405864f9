"""What a rendezvous offers to the agent of a node, and what it hands out.

Names and signatures are those of torch elastic 2.15, without needing torch.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from elasticjob.rendezvous.address import free_port, local_address
from elasticjob.rendezvous.store import Store


@dataclass
class RendezvousStoreInfo:
    """Where the processes of a round meet: address and port of the store that rank 0 serves."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(
        rank: int, store: Store, local_addr: str | None = None, server_port: int | None = None
    ) -> "RendezvousStoreInfo":
        """Agree on the meeting point of a round: rank 0 writes it to the store, the others wait for it.

        Args:
            rank: Rank of this node.
            store: Store of the round.
            local_addr: Address of this node; found out if not given.
            server_port: Port on which a store is already served; else a free port is chosen.

        Raises:
            LookupError: Rank 0 did not write it within the time-out of the store.
        """
        if rank == 0:
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, (local_addr or local_address()).encode())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or free_port()).encode())
        return RendezvousStoreInfo(
            master_addr=store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode(),
            master_port=int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY).decode()),
        )


@dataclass(frozen=True, eq=False)
class RendezvousInfo:
    """What a node learns when a round is complete.

    Args:
        store: A store that only the members of this round see.
        rank: Rank of this node, from 0.
        world_size: Number of nodes in the round.
        bootstrap_store_info: Where the processes of the round meet.
    """

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo | None


class RendezvousHandler(ABC):
    """The rendezvous as seen by one node."""

    @abstractmethod
    def get_backend(self) -> str:
        """Return the name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether training processes may share the store that `next_rendezvous()` returns."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until a round is complete that this node is in.

        Raises:
            RendezvousClosedError: The rendezvous is closed.
            RendezvousConnectionError: The backend cannot be reached.
            RendezvousGracefulExitError: This node was a spare, and the rendezvous is closed.
            RendezvousStateError: The stored state is corrupt.
            RendezvousTimeoutError: The round was not complete in time.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the rendezvous is closed, so that no further round will form.

        Others learn of it after a while: this is no means to synchronise.
        """

    @abstractmethod
    def set_closed(self) -> None:
        """Close the rendezvous for all nodes and for good."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """More than 0 exactly if this node must call `next_rendezvous()` again, else 0. To be asked again and again."""

    @abstractmethod
    def get_run_id(self) -> str:
        """Return the id of the run."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Release what the rendezvous holds for this node; says whether that worked.

        Usage::

            handler = ...
            try:
                info = handler.next_rendezvous()
            finally:
                handler.shutdown()
        """
