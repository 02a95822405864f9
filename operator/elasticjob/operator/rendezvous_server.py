"""Composes the rendezvous half: host, state backends, caller identity and HTTP server, for one leadership.

Everything lives on the event loop on which `serve` runs. The half ends when it is told to, or when the stored state of
a run shows that somebody else leads; then it fails, and its keeper decides.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from elasticjob.operator.auth import Authenticator
from elasticjob.operator.cluster import Cluster, Connect, load_configuration
from elasticjob.operator.errors import NotLeader
from elasticjob.operator.fenced import FencedCluster
from elasticjob.operator.host import Host
from elasticjob.operator.host_state import BackendFactory
from elasticjob.operator.hosting import HostContext, RendezvousServer, ServerFactory
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server import RendezvousHttpServer
from elasticjob.operator.state_backends import backend_factory
from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.orders import RunOrders, RunView


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What the rendezvous half is made of; replaced in tests.

    Args:
        connect: Finds the API server and the credentials.
        address: Address to listen on; None for all.
        ssl_context: Serves by TLS if given.
    """

    metrics: Metrics
    connect: Connect = load_configuration
    address: str | None = None
    ssl_context: ssl.SSLContext | None = None


class HostedRendezvous:
    """Implements `elasticjob.operator.hosting.RendezvousServer`."""

    def __init__(self, context: HostContext, parts: ServerParts) -> None:
        self._context = context
        self._parts = parts
        self._backends: BackendFactory | None = None
        self._is_lost = asyncio.Event()
        self._why_lost = ""
        self._http: RendezvousHttpServer | None = None
        self._host = Host(
            epoch=context.epoch,
            backend_factory=self._backend,
            on_change=context.on_change,
            on_lost=self._on_lost,
            require_leadership=context.leadership.require,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, once `serve` has started."""
        assert self._http is not None
        return self._http.port

    def apply(self, orders: RunOrders) -> None:
        """See `RendezvousHost`."""
        self._host.apply(orders)

    def view(self, run_id: str) -> RunView | None:
        """See `RendezvousHost`."""
        return self._host.view(run_id)

    def forget(self, run_id: str) -> None:
        """See `RendezvousHost`."""
        self._host.forget(run_id)

    async def serve(self, stop: asyncio.Event, *, started: Callable[[], None]) -> None:
        """Serve until told to stop.

        Raises:
            NotLeader: The stored state of a run shows that somebody else leads.
        """
        settings = self._context.settings
        loop = asyncio.get_running_loop()
        timeout = settings.api_timeout_seconds
        cluster = Cluster(await self._parts.connect(), timeout=timeout, metrics=self._parts.metrics)
        fenced = FencedCluster(cluster, leadership=self._context.leadership, timeout=timeout)
        self._backends = backend_factory(fenced, loop)
        self._http = RendezvousHttpServer(
            self._host,
            Authenticator(cluster),
            port=settings.rendezvous_port,
            address=self._parts.address,
            ssl_context=self._parts.ssl_context,
        )
        try:
            await self._host.start()
            await self._http.start()
            started()
            await self._until_told(stop)
        finally:
            await self._http.stop()
            await self._host.stop()
            await cluster.close()

    async def _until_told(self, stop: asyncio.Event) -> None:
        told = [asyncio.create_task(event.wait()) for event in (stop, self._is_lost)]
        try:
            await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in told:
                task.cancel()
        if self._is_lost.is_set():
            raise NotLeader(self._why_lost)

    def _backend(self, orders: RunOrders) -> RendezvousBackend:
        assert self._backends is not None
        return self._backends(orders)

    def _on_lost(self, message: str) -> None:
        self._why_lost = message
        self._is_lost.set()


def server_factory(parts: ServerParts) -> ServerFactory:
    """What `app.Parts.server` takes."""

    def make(context: HostContext) -> RendezvousServer:
        return HostedRendezvous(context, parts)

    return make
