"""The rendezvous half as the rest of the operator sees it.

The server exists only while this process leads, and is made anew when it fails. `HostSwitch` stands for whichever
server runs now, so that the reconciler need not know: while none runs, orders are dropped and no run has a view. That
loses nothing, since all jobs are reconciled, and so ordered anew, whenever a server has started.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from elasticjob.operator.leadership.elector import Leadership
from elasticjob.operator.ports import RendezvousHost
from elasticjob.operator.settings import Settings
from elasticjob.rendezvous.orders import RunOrders, RunView


@dataclass(frozen=True, kw_only=True)
class HostContext:
    """What a rendezvous server is made from.

    Args:
        epoch: The epoch of this leadership; every state it writes carries it.
        installation: Names this operator and its successors, unlike any other, also of another cluster.
        leadership: To be asked before each write.
        holds_lease: Reads the lease and tells whether it is this leader's, with this epoch. Raises if it cannot be
            read.
        on_change: To be called with namespace and name of a job whose view changed, from any thread.
    """

    settings: Settings
    epoch: int
    installation: str
    leadership: Leadership
    holds_lease: Callable[[], Awaitable[bool]]
    on_change: Callable[[str, str], None]


class RendezvousServer(RendezvousHost, Protocol):
    """A rendezvous host with a life of its own. The methods of `RendezvousHost` may be called while `serve` runs."""

    async def serve(self, stop: asyncio.Event, *, started: Callable[[], None]) -> None:
        """Serve until `stop` is set; call `started` once calls are answered. Alone on its event loop."""


ServerFactory = Callable[[HostContext], RendezvousServer]


class HostSwitch:
    """The `RendezvousHost` that is always there."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._host: RendezvousHost | None = None

    def connect(self, host: RendezvousHost | None) -> None:
        """Pass everything on to this host from now on; None for nowhere."""
        with self._guard:
            self._host = host

    def apply(self, orders: RunOrders) -> None:
        """Give orders to the host that runs, if any."""
        if (host := self._host) is not None:
            host.apply(orders)

    def view(self, run_id: str) -> RunView | None:
        """The view of the host that runs, if any."""
        host = self._host
        return host.view(run_id) if host is not None else None

    def forget(self, run_id: str) -> None:
        """Have the host that runs drop a run."""
        if (host := self._host) is not None:
            host.forget(run_id)

    def erase(self, orders: RunOrders) -> None:
        """Have the host that runs drop the run of a job that is gone."""
        if (host := self._host) is not None:
            host.erase(orders)
