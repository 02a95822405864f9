"""Composes the operator and supervises its parts.

The main thread has the supervisor: leader election, health, signals. Three parts run beside it, each in a thread with
an event loop of its own: `watch` (Kopf), `controller` (cache, queue, reconcile, Events), and, while this process
leads, `rendezvous` (the server that workers call). A part that fails is started anew without touching the others.

Leadership governs all writes. When it ends, in whatever way, the parts are told to stop, and `Leadership` itself
already refuses every write, since it ends by the clock.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import uvloop

from elasticjob.operator.cluster import Cluster, Connect, load_configuration
from elasticjob.operator.controller import Controller
from elasticjob.operator.errors import NotLeader
from elasticjob.operator.halves import Keeper, LoopFactory, Main, RestartPolicy
from elasticjob.operator.health import HealthServer
from elasticjob.operator.hosting.half import HostContext, HostSwitch, ServerFactory
from elasticjob.operator.leadership.elector import Elector, Leadership, LeaseTiming
from elasticjob.operator.leadership.fenced import FencedCluster
from elasticjob.operator.leadership.label import LeaderLabel
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.model.fields import mapping, number
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.ports import Clock, ClusterPort
from elasticjob.operator.reconcile import Planner
from elasticjob.operator.resources import JOBS
from elasticjob.operator.rights import require_watch_rights
from elasticjob.operator.settings import Settings
from elasticjob.operator.shell import watch

_log = logging.getLogger(__name__)

_SEPARATOR = "_"
"""Between the pod's name, which cannot hold it, and what tells its processes apart."""
SILENCE_LIMIT = 30.0
"""Seconds without a turn of an event loop after which the process counts as hanging."""
HIGHEST_FLOOR = 2**30
"""Later epochs in a status are forged: a lease counts to 2**31 - 1, and nobody has led a billion times."""
WATCH_FAILURES = 40
"""Failures of the watches in a row after which the process ends. An API server away for minutes is no reason."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an operator is made of; replaced in tests.

    Args:
        connect: Finds the API server and the credentials.
        planner: The pure decision about a job.
        server: Makes the rendezvous server of one leadership; None to serve none.
        facts: What worker pods must know of the operator, asked at each reconcile. Raises `Unavailable` while it is not
            known: jobs are then tried again.
    """

    clock: Clock
    planner: Planner
    facts: Callable[[], OperatorFacts]
    server: ServerFactory | None = None
    connect: Connect = load_configuration
    metrics: Metrics = field(default_factory=Metrics)


class App:
    """One operator process."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self.settings = settings
        self.metrics = parts.metrics
        self.identity = f"{settings.pod_name}{_SEPARATOR}{secrets.token_hex(4)}"
        self.leadership = Leadership(parts.clock)
        self._parts = parts
        self._clock = parts.clock
        self._host = HostSwitch()
        self.controller = Controller(
            settings=settings,
            connect=parts.connect,
            clock=parts.clock,
            leadership=self.leadership,
            metrics=parts.metrics,
            host=self._host,
            facts=parts.facts,
            planner=parts.planner,
        )
        self._controller_keeper = self._keeper("controller", self.controller.run)
        self._watch_keeper = self._keeper("watch", self._watch, most=WATCH_FAILURES)
        self._server_keeper: Keeper | None = None
        self._server_task: asyncio.Task[None] | None = None
        self._watches = False
        self._has_failed = False
        self._stop: asyncio.Event | None = None
        self._elector: Elector | None = None
        self._label: LeaderLabel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.health = HealthServer(port=settings.health_port, live=self.live, ready=self.ready, metrics=parts.metrics)

    def live(self) -> list[str]:
        """What hangs."""
        keepers = [self._controller_keeper, self._watch_keeper, self._server_keeper]
        return [
            f"{keeper.name} has not responded for {keeper.silent_seconds():.0f} seconds"
            for keeper in keepers
            if keeper is not None and keeper.silent_seconds() > SILENCE_LIMIT
        ]

    def ready(self) -> list[str]:
        """What is missing to take over at once."""
        troubles = [] if self.controller.synced else ["the cluster's objects have not been listed"]
        if not self._watches:
            troubles.append("the watches are not active")
        return troubles

    def stop(self) -> None:
        """Begin to end in good order. Thread-safe."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(stop.set)

    async def run(self) -> int:
        """Run until told to stop or until a part cannot be kept running.

        Returns:
            The exit status: 0 if the operator was told to stop and did so in time.
        """
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._stop.set)
        cluster = Cluster(await self._parts.connect(), timeout=self.settings.api_timeout_seconds, metrics=self.metrics)
        await self.health.start()
        try:
            return await self._supervise(cluster, self._stop)
        finally:
            await self.health.stop()
            await cluster.close()

    async def _supervise(self, cluster: ClusterPort, stop: asyncio.Event) -> int:
        leave = asyncio.Event()
        elector = self._elector = self._make_elector(cluster)
        election = _task(elector.run(leave), "election")
        parts = [
            _task(self._controller_keeper.run(), "controller"),
            _task(self._watch_keeper.run(), "watch"),
        ]
        label = self._label = LeaderLabel(
            cluster=cluster,
            fenced=FencedCluster(cluster, leadership=self.leadership, timeout=self.settings.api_timeout_seconds),
            namespace=self.settings.namespace,
            pod=self.settings.pod_name,
        )
        parts.append(_task(label.run(), "label"))
        told = _task(_until(stop), "stop")
        ended, _ = await asyncio.wait({election, told, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for task in ended - {told}:
            self._has_failed = True
            _log.critical("%s ended", task.get_name(), exc_info=task.exception())
        leave.set()
        try:
            async with asyncio.timeout(self.settings.shutdown_timeout_seconds):
                await asyncio.gather(election, return_exceptions=True)
                await _cancel([*parts, told])
        except TimeoutError:
            _log.critical("the operator did not end in time")
            return 1
        return int(self._has_failed)

    def _make_elector(self, cluster: ClusterPort) -> Elector:
        async def epoch_floor() -> int:
            return await highest_epoch(cluster, self.settings)

        return Elector(
            cluster=cluster,
            namespace=self.settings.namespace,
            name=self.settings.lease_name,
            identity=self.identity,
            timing=LeaseTiming.of(self.settings.lease_duration_seconds),
            clock=self._clock,
            leadership=self.leadership,
            epoch_floor=epoch_floor,
            on_acquired=self._begin,
            on_lost=self._end,
        )

    async def _begin(self, epoch: int) -> None:
        self.metrics.leader.set(1)
        self.metrics.epoch.set(epoch)
        if self._parts.server is not None:
            serve = self._serve(epoch, self._parts.server)
            self._server_keeper = self._keeper("rendezvous", serve, loop_factory=uvloop.new_event_loop)
            self._server_task = _task(self._server_keeper.run(), "rendezvous")
            self._server_task.add_done_callback(self._server_ended)
        self.controller.lead()

    async def _end(self) -> None:
        self.metrics.leader.set(0)
        server, self._server_task = self._server_task, None
        self._server_keeper = None
        self._host.connect(None)
        self._show_label(leads=False)
        await asyncio.gather(self.controller.stand_by(), _cancel([server] if server else []))

    def _server_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None and self._stop is not None:
            _log.critical("rendezvous ended", exc_info=task.exception())
            self._has_failed = True
            self._stop.set()

    def _serve(self, epoch: int, factory: ServerFactory) -> Main:
        assert self._elector is not None
        context = HostContext(
            settings=self.settings,
            epoch=epoch,
            installation=self._elector.lease_uid,
            leadership=self.leadership,
            holds_lease=self._lease_reader(self._elector, epoch),
            on_change=self.controller.enqueue,
        )

        async def serve(stop: asyncio.Event) -> None:
            server = factory(context)

            def started() -> None:
                self._host.connect(server)
                self.controller.enqueue_all()
                self._show_label(leads=True)

            try:
                await server.serve(stop, started=started)
            except NotLeader as error:
                _log.warning("a stored state knows a later leader: %s", error)
                self._resign()
                await stop.wait()
            finally:
                self._host.connect(None)

        return serve

    def _lease_reader(self, elector: Elector, epoch: int) -> Callable[[], Awaitable[bool]]:
        loop = asyncio.get_running_loop()

        async def holds() -> bool:
            """Asked on the loop of the rendezvous; the elector's client belongs to this one."""
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(elector.holds(epoch), loop))

        return holds

    def _show_label(self, *, leads: bool) -> None:
        loop, label = self._loop, self._label
        silent = pod_of(self._elector.predecessor) if self._elector is not None else ""
        if loop is not None and label is not None:
            loop.call_soon_threadsafe(
                lambda: label.show(leads=leads and self._server_task is not None, instead_of=silent)
            )

    def _resign(self) -> None:
        loop, elector = self._loop, self._elector
        if loop is not None and elector is not None:
            loop.call_soon_threadsafe(elector.resign)

    async def _watch(self, stop: asyncio.Event) -> None:
        await self._check_rights()
        started = asyncio.Event()
        note = asyncio.create_task(self._note_watching(started))
        try:
            await watch(self.controller, self.settings, connect=self._parts.connect, stop=stop, started=started)
        finally:
            self._watches = False
            note.cancel()

    async def _check_rights(self) -> None:
        cluster = Cluster(await self._parts.connect(), timeout=self.settings.api_timeout_seconds, metrics=self.metrics)
        try:
            await require_watch_rights(cluster, self.settings.scopes)
        finally:
            await cluster.close()

    async def _note_watching(self, started: asyncio.Event) -> None:
        await started.wait()
        self._watches = True

    def _keeper(
        self, name: str, main: Main, *, most: int = 10, loop_factory: LoopFactory = asyncio.new_event_loop
    ) -> Keeper:
        return Keeper(
            name=name,
            main=main,
            clock=self._clock,
            metrics=self.metrics,
            policy=RestartPolicy(most=most),
            loop_factory=loop_factory,
        )


def pod_of(identity: str) -> str:
    """The pod of an operator, by its identity in the lease; empty for nobody."""
    return identity.rpartition(_SEPARATOR)[0]


async def highest_epoch(cluster: ClusterPort, settings: Settings) -> int:
    """The highest epoch that the status of any job carries and that may have been given out; 0 if none does."""
    epochs = [0]
    for namespace in settings.scopes:
        listed = await cluster.list(JOBS, namespace=namespace)
        epochs += [number(mapping(mapping(job, "status"), "rendezvous"), "epoch") for job in listed.items]
    return max(epoch for epoch in epochs if epoch <= HIGHEST_FLOOR)


def _task(coroutine: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(coroutine, name=name)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
