"""Composes the rendezvous half: host, state backends, caller identity and HTTP server, for one leadership.

Everything lives on the event loop on which `serve` runs. The half ends when it is told to, or when the stored state of
a run and the lease show that somebody else leads; then it fails, and its keeper decides.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.cluster import Cluster, Connect, load_configuration
from elasticjob.operator.errors import ClusterError, NotLeader, Starting
from elasticjob.operator.hosting.half import HostContext, RendezvousServer, ServerFactory
from elasticjob.operator.hosting.host import Host
from elasticjob.operator.hosting.state import BackendFactory
from elasticjob.operator.hosting.state_backends import backend_factory, states_beside, stays_behind
from elasticjob.operator.hosting.state_sweep import StateSweep, job_uid
from elasticjob.operator.leadership.fenced import FencedCluster
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Clock, ClusterPort
from elasticjob.operator.server.auth import Authenticator
from elasticjob.operator.server.certificates import TlsKeeper
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.orders import RunOrders, RunView

log = logging.getLogger(__name__)

TLS_SECRET = "elasticjob-rendezvous-tls"  # noqa: S105 - its name, not its content
COLLECTOR_THRESHOLDS = (20_000, 20, 20)
RENEWAL_INTERVAL = 3600.0
"""Seconds between two looks at the certificates."""


def relax_collector() -> None:
    """Have the garbage collector look less often, and not at what is there already.

    Each connection and call makes objects that live for seconds. With its defaults the collector then walks through all
    objects of the process again and again, which costs as much as the calls. Little here is in reference cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


class Trust:
    """What worker pods are given to check the server against. Written by the server's thread, read by any."""

    def __init__(self) -> None:
        self._bundle = ""

    def publish(self, bundle: str) -> None:
        """The server is served with a certificate of these authorities."""
        self._bundle = bundle

    def bundle(self) -> str:
        """PEM of the authorities.

        Raises:
            Starting: There is none yet: no pod may be made now.
        """
        if not self._bundle:
            raise Starting("the certificates of the rendezvous are not made yet")
        return self._bundle


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """What the rendezvous half is made of; replaced in tests.

    Args:
        connect: Finds the API server and the credentials.
        address: Address to listen on; None for all.
        clock: Tells the time of day for certificates.
        trust: If given, the server speaks TLS with certificates of its own, and publishes here whom to trust.
        renewal_interval: Seconds between two looks at the certificates.
    """

    metrics: Metrics
    connect: Connect = load_configuration
    address: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    trust: Trust | None = None
    renewal_interval: float = RENEWAL_INTERVAL


class HostedRendezvous:
    """Implements `elasticjob.operator.hosting.half.RendezvousServer`."""

    def __init__(self, context: HostContext, parts: ServerParts) -> None:
        self._context = context
        self._parts = parts
        self._backends: BackendFactory | None = None
        self._sweep: StateSweep | None = None
        self._is_lost = asyncio.Event()
        self._why_lost = ""
        self._http: RendezvousHttpServer | None = None
        self._host = Host(
            epoch=context.epoch,
            backend_factory=self._backend,
            on_change=context.on_change,
            on_lost=self._on_lost,
            require_leadership=context.leadership.require,
            holds_lease=context.holds_lease,
            metrics=parts.metrics,
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

    def erase(self, orders: RunOrders) -> None:
        """See `RendezvousHost`."""
        self._host.erase(orders)

    async def serve(self, stop: asyncio.Event, *, started: Callable[[], None]) -> None:
        """Serve until told to stop.

        Raises:
            NotLeader: The stored state of a run and the lease show that somebody else leads.
        """
        settings = self._context.settings
        loop = asyncio.get_running_loop()
        timeout = settings.api_timeout_seconds
        cluster = Cluster(await self._parts.connect(), timeout=timeout, metrics=self._parts.metrics)
        fenced = FencedCluster(cluster, leadership=self._context.leadership, timeout=timeout)
        self._backends = backend_factory(fenced, loop, installation=self._context.installation)
        self._sweep = self._state_sweep(fenced)
        renewal: asyncio.Task[None] | None = None
        try:
            tls = await self._certificates(fenced)
            self._http = RendezvousHttpServer(
                self._host,
                Authenticator(cluster),
                port=settings.rendezvous_port,
                address=self._parts.address,
                ssl_context=None if tls is None else tls.context,
                metrics=self._parts.metrics,
            )
            renewal = None if tls is None else asyncio.create_task(self._renew(tls), name="renew certificates")
            relax_collector()
            await self._host.start()
            await self._http.start()
            started()
            await self._until_told(stop)
        finally:
            if renewal is not None:
                renewal.cancel()
            if self._http is not None:
                await self._http.stop()
            await self._host.stop()
            await self._sweep.stop()
            await cluster.close()

    async def _certificates(self, cluster: ClusterPort) -> TlsKeeper | None:
        if self._parts.trust is None:
            return None
        settings = self._context.settings
        host = ServerEndpoint.parse(settings.endpoint, tls=True).host
        tls = TlsKeeper(
            cluster, namespace=settings.namespace, name=TLS_SECRET, names=(host,), wall=self._parts.clock.wall
        )
        await tls.ensure()
        self._parts.trust.publish(tls.bundle)
        return tls

    async def _renew(self, tls: TlsKeeper) -> None:
        assert self._parts.trust is not None
        while True:
            await asyncio.sleep(self._parts.renewal_interval)
            try:
                await tls.ensure()
            except ClusterError as error:
                log.warning("The certificates of the rendezvous could not be looked at: %s", error)
            except Exception:
                # Whatever it is may pass; a renewal that has ended lets the certificates run out.
                log.exception("The certificates of the rendezvous could not be renewed")
            self._parts.trust.publish(tls.bundle)

    async def _until_told(self, stop: asyncio.Event) -> None:
        told = [asyncio.create_task(event.wait()) for event in (stop, self._is_lost)]
        try:
            await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in told:
                task.cancel()
        if self._is_lost.is_set():
            raise NotLeader(self._why_lost)

    def _state_sweep(self, cluster: ClusterPort) -> StateSweep:
        return StateSweep(
            installation=self._context.installation,
            open_states=states_beside,
            job_uid=partial(job_uid, cluster),
            is_served=lambda run_id: self._host.view(run_id) is not None,
            require_leadership=self._context.leadership.require,
            metrics=self._parts.metrics,
        )

    def _backend(self, orders: RunOrders) -> RendezvousBackend:
        assert self._backends is not None
        if self._sweep is not None and stays_behind(orders):
            self._sweep.note(orders)
        return self._backends(orders)

    def _on_lost(self, message: str) -> None:
        self._why_lost = message
        self._is_lost.set()


def server_factory(parts: ServerParts) -> ServerFactory:
    """What `app.Parts.server` takes."""

    def make(context: HostContext) -> RendezvousServer:
        return HostedRendezvous(context, parts)

    return make
