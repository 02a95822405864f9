"""The controller half: the cache, the queue, the workers, and what tells people about it.

It lives on one event loop. The cache is kept warm whether or not this process leads, so that a standby takes over
within moments; workers, the events poster and the mirror run only while it leads. Both begin with a full list of all
objects, so nothing depends on events that were missed, be it before the start or between two leaderships.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.cluster import Cluster, Connect
from elasticjob.operator.errors import ClusterError, Forbidden, NotFound, NotLeader
from elasticjob.operator.leadership.elector import Leadership
from elasticjob.operator.leadership.fenced import FencedCluster
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.mirror.mirror import EventMirror
from elasticjob.operator.mirror.poster import EventsPoster
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.ports import Body, Clock, ClusterPort, RendezvousHost, Resource
from elasticjob.operator.reconcile import Planner, Reconciler, Result
from elasticjob.operator.resources import JOBS, PODS, WATCHED, selector_of
from elasticjob.operator.settings import Settings
from elasticjob.operator.waiting import happens
from elasticjob.operator.work_queue import Backoff, QueueClosed, WorkQueue

_log = logging.getLogger(__name__)

RELIST_SETTLE = 1.0
"""Seconds to wait after the first sign of a re-list, so that one comparison answers for all of it."""
PUMP_PERIOD = 0.5
STAND_BY_SECONDS = 2.0


class Controller:
    """The half that reconciles. `see`, `enqueue`, `lead` and `stand_by` may be called from any thread or loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        connect: Connect,
        clock: Clock,
        leadership: Leadership,
        metrics: Metrics,
        host: RendezvousHost,
        facts: Callable[[], OperatorFacts],
        planner: Planner,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clock = clock
        self._leadership = leadership
        self._metrics = metrics
        self._host = host
        self._facts = facts
        self._planner = planner
        self._guard = threading.Lock()
        self._session: _Session | None = None
        self._leads = False

    @property
    def synced(self) -> bool:
        """Whether the cache has held everything since its last full list."""
        session = self._session
        return session is not None and session.synced

    def see(self, resource: Resource, event_type: str | None, body: Body) -> None:
        """Take one watch event."""
        self._post(lambda session: session.see(resource, event_type, body))

    def enqueue(self, namespace: str, job: str) -> None:
        """Something outside the cluster changed for a job."""
        self._post(lambda session: session.add(JobKey(namespace, job)))

    def enqueue_all(self) -> None:
        """Something changed for all jobs."""
        self._post(lambda session: session.add_all())

    def lead(self) -> None:
        """Begin to act; returns at once."""
        self._leads = True
        self._post(lambda session: session.begin())

    async def stand_by(self) -> None:
        """Cease to act; returns when nothing acts any more."""
        self._leads = False
        done: asyncio.Event = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            loop.call_soon_threadsafe(done.set)

        def end(session: "_Session") -> None:
            session.end().add_done_callback(ended)

        if self._post(end):
            # Should the half end in between, nobody would answer. The fence refuses its writes in any case.
            await happens(done, within=STAND_BY_SECONDS)

    async def run(self, stop: asyncio.Event) -> None:
        """Run the half until `stop` is set."""
        cluster = Cluster(await self._connect(), timeout=self._settings.api_timeout_seconds, metrics=self._metrics)
        session = self._open(cluster)
        with self._guard:
            self._session = session
        try:
            if self._leads:
                session.begin()
            await session.run(stop)
        finally:
            with self._guard:
                self._session = None
            await session.end()
            await cluster.close()

    def _open(self, cluster: ClusterPort) -> "_Session":
        settings = self._settings
        fenced = FencedCluster(cluster, leadership=self._leadership, timeout=settings.api_timeout_seconds)
        poster = EventsPoster(cluster=fenced, clock=self._clock, instance=settings.pod_name, metrics=self._metrics)
        mirror = EventMirror(clock=self._clock)
        cache = Cache()
        reconciler = Reconciler(
            cluster=fenced,
            cache=cache,
            host=self._host,
            events=poster,
            mirror=mirror,
            clock=self._clock,
            facts=self._facts,
            planner=self._planner,
            parallelism=settings.pod_parallelism,
            status_interval=settings.status_interval_seconds,
        )
        return _Session(
            settings=settings,
            cluster=cluster,
            clock=self._clock,
            metrics=self._metrics,
            cache=cache,
            reconciler=reconciler,
            poster=poster,
            mirror=mirror,
        )

    def _post(self, call: Callable[["_Session"], Any]) -> bool:
        """Have something done on the half's loop. False if it does not run; its next start begins with a full list."""
        with self._guard:
            session = self._session
            if session is None:
                return False
            try:
                session.loop.call_soon_threadsafe(call, session)
            except RuntimeError:
                return False
            return True


class _Session:
    """One run of the half; everything here happens on its loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        cluster: ClusterPort,
        clock: Clock,
        metrics: Metrics,
        cache: Cache,
        reconciler: Reconciler,
        poster: EventsPoster,
        mirror: EventMirror,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.synced = False
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._cache = cache
        self._reconciler = reconciler
        self._poster = poster
        self._mirror = mirror
        self._queue: WorkQueue[JobKey] | None = None
        self._acting: asyncio.Task[None] | None = None
        self._relisted = asyncio.Event()
        self._crash: asyncio.Future[None] = self.loop.create_future()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the cache true until `stop` is set. A fault of any task ends the run with its error."""
        resync = asyncio.create_task(self._resync_forever(), name="resync")
        stopped = asyncio.create_task(stop.wait())
        waited: set[asyncio.Future[Any]] = {resync, stopped, self._crash}
        try:
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            resync.cancel()
            stopped.cancel()
            await asyncio.gather(resync, stopped, return_exceptions=True)

    def see(self, resource: Resource, event_type: str | None, body: Body) -> None:
        """Take over one watch event and have its job reconciled."""
        self._metrics.watch_events.labels(resource.plural).inc()
        if event_type is None and self._cache.knows(resource, body):
            self._relisted.set()
        seen = self._cache.see(resource, body, deleted=event_type == "DELETED")
        if seen.key is None:
            return
        made_room = event_type == "DELETED" and self._reconciler.gone(resource, seen.key, body["metadata"]["name"])
        if seen.changed or made_room:
            self.add(seen.key)

    def add(self, key: JobKey) -> None:
        """Have a job reconciled, if this process leads."""
        if self._queue is not None and not self._queue.add(key):
            self._metrics.queue_refused.inc()

    def add_all(self) -> None:
        """Have all jobs reconciled."""
        for key in self._cache.jobs():
            self.add(key)

    def begin(self) -> None:
        """Begin to act."""
        if self._acting is None:
            self._acting = asyncio.create_task(self._act(), name="act")
            self._acting.add_done_callback(self._acting_ended)

    def end(self) -> "asyncio.Task[None]":
        """Cease to act; the task ends when nothing acts any more."""
        return asyncio.create_task(self._end(), name="stand by")

    async def _end(self) -> None:
        acting, self._acting = self._acting, None
        if acting is not None:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
        self._poster.clear()
        self._reconciler.reset()

    def _acting_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() and not self._crash.done():
            self._crash.set_exception(task.exception() or RuntimeError("the workers ended"))

    async def _act(self) -> None:
        settings = self._settings
        backoff = Backoff(base=settings.retry_base_seconds, limit=settings.retry_limit_seconds)
        queue: WorkQueue[JobKey] = WorkQueue(clock=self._clock, backoff=backoff)
        await self._resync_until_done()
        self._queue = queue
        self._mirror.install()
        try:
            self.add_all()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poster.run(), name="events")
                group.create_task(self._pump(queue), name="mirror")
                for number in range(settings.reconcile_workers):
                    group.create_task(self._work(queue), name=f"worker-{number}")
        finally:
            self._mirror.uninstall()
            self._queue = None
            queue.close()

    async def _work(self, queue: WorkQueue[JobKey]) -> None:
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            try:
                await self._reconcile(queue, key)
            finally:
                queue.done(key)

    async def _reconcile(self, queue: WorkQueue[JobKey], key: JobKey) -> None:
        with self._metrics.reconcile_seconds.time():
            try:
                result = await self._reconciler.reconcile(key)
            except NotLeader:
                self._metrics.reconciles.labels("not-leader").inc()
            except Exception:
                # One job that cannot be worked on, for whatever fault of ours, must not stop the others.
                _log.exception("reconcile failed", extra={"job": str(key)})
                self._metrics.reconciles.labels("error").inc()
                queue.retry(key)
            else:
                self._metrics.reconciles.labels("failed" if result.failed else "done").inc()
                _follow(queue, key, result)

    async def _pump(self, queue: WorkQueue[JobKey]) -> None:
        while True:
            for occurrence in self._mirror.drain(self._clock.now()):
                self._poster.emit(occurrence)
            self._metrics.queue_depth.set(queue.ready)
            self._metrics.jobs.set(self._cache.count(JOBS))
            self._metrics.pods.set(self._cache.count(PODS))
            await asyncio.sleep(PUMP_PERIOD)

    async def _resync_forever(self) -> None:
        while True:
            await self._resync_until_done()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.resync_interval_seconds):
                    await self._relisted.wait()
                    await asyncio.sleep(RELIST_SETTLE)

    async def _resync_until_done(self) -> None:
        backoff = Backoff(base=1.0, limit=30.0)
        failures = 0
        while True:
            self._relisted.clear()
            try:
                await self._resync()
            except ClusterError as error:
                failures += 1
                # A server that is slow or away for a while makes nobody blind who was not so before: the watches go on.
                self.synced = self.synced and not isinstance(error, Forbidden | NotFound)
                _log.warning("cannot list the cluster's objects: %s", error)
                await asyncio.sleep(backoff.pause(failures))
            else:
                self.synced = True
                return

    async def _resync(self) -> None:
        for namespace in self._settings.scopes:
            for resource in WATCHED:
                listed = await self._cluster.list(resource, namespace=namespace, label_selector=selector_of(resource))
                touched = self._cache.replace(
                    resource, listed.items, resource_version=listed.resource_version, namespace=namespace
                )
                for key in touched:
                    self.add(key)


def _follow(queue: WorkQueue[JobKey], key: JobKey, result: Result) -> None:
    if result.failed:
        queue.retry(key, at_least=result.at_least)
    else:
        queue.forget(key)
    if result.after is not None:
        queue.add(key, delay=result.after)
    if result.again:
        queue.add(key)
