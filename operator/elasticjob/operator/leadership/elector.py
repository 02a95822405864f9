"""Leader election on one Lease, with an epoch.

Model: the Lease names a holder. Whoever sees the record unchanged for a full lease duration *by its own clock* may
take it by compare-and-set; times written by others are never compared with the own clock, so clock skew does no harm.
Each acquisition, also of a released or own earlier lease, adds one to `leaseTransitions`: that number is the epoch.
All state that the operator keeps carries the epoch, so the data itself refuses a late write of an old leader. Who
leads, the Lease alone says: others may write any number into a state.

Invariants:
- The holder acts until `renewed + renew deadline`, where `renewed` is the moment *before* the renewing request was
  sent. That is earlier than anybody else can take over, who waits a lease duration from when he saw the renewal.
- Leadership ends by itself when time runs out: `Leadership.remaining` needs nobody's notice.
- An epoch is never used twice.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from elasticjob.operator.clock import micro_timestamp
from elasticjob.operator.errors import AlreadyExists, ClusterError, Conflict, NotFound, NotLeader
from elasticjob.operator.ports import Body, Clock, ClusterPort
from elasticjob.operator.resources import LEASES
from elasticjob.operator.waiting import happens

_log = logging.getLogger(__name__)

_AFTER_FLOOR = 10
"""Added to the floor: a few leaders may have come and gone without leaving their epoch where the floor is read."""


@dataclass(frozen=True, kw_only=True)
class LeaseTiming:
    """Durations in seconds. The proportions are those of client-go's elector (15 : 10 : 2)."""

    duration: float
    renew_deadline: float
    retry_period: float

    @classmethod
    def of(cls, duration: float) -> "LeaseTiming":
        """All times, from the lease's duration."""
        return cls(duration=duration, renew_deadline=duration * 2 / 3, retry_period=duration * 2 / 15)


@dataclass(frozen=True, kw_only=True)
class Term:
    """One uninterrupted leadership: its epoch and the moment at which it ends unless renewed."""

    epoch: int
    ends: float


class Leadership:
    """Whether this process leads, for every part that writes. Thread-safe: one reference is swapped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._term: Term | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch while this process leads, else None."""
        term = self._term
        return term.epoch if term and term.ends > self._clock.now() else None

    def remaining(self) -> float:
        """Seconds for which this process still leads if nothing is renewed; 0 if it does not lead."""
        term = self._term
        return max(0.0, term.ends - self._clock.now()) if term else 0.0

    def require(self) -> float:
        """Like `remaining`, for a caller who is about to write.

        Raises:
            NotLeader: This process does not lead.
        """
        left = self.remaining()
        if left <= 0:
            raise NotLeader("this process does not hold the lease")
        return left

    def extend(self, term: Term) -> None:
        """The lease was taken or renewed."""
        self._term = term

    def end(self) -> None:
        """Stop leading now."""
        self._term = None


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A record of the lease, and when this process first saw it like that."""

    version: str
    at: float


def may_take(lease: Body, sighting: Sighting, *, now: float) -> bool:
    """Whether somebody who has seen the lease unchanged since `sighting` may take it."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return True
    return now >= sighting.at + float(spec.get("leaseDurationSeconds") or 0)


class Elector:
    """Takes, renews and releases the lease; says so by two callbacks.

    Args:
        identity: Unique for this process, also over restarts of its container.
        epoch_floor: Asked when there is no Lease (any more): the highest epoch that any state is known to carry.
            Without it a deleted Lease would begin again at 1, and all state would refuse its new leader.
        on_acquired: Called with the new epoch when this process has begun to lead. A failure gives the lease back.
        on_lost: Called when it has ceased to lead, for whatever reason. Both are awaited, on the elector's loop;
            renewals go on while `on_acquired` runs.
    """

    def __init__(
        self,
        *,
        cluster: ClusterPort,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming,
        clock: Clock,
        leadership: Leadership,
        epoch_floor: Callable[[], Awaitable[int]],
        on_acquired: Callable[[int], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._leadership = leadership
        self._epoch_floor = epoch_floor
        self._on_acquired = on_acquired
        self._on_lost = on_lost
        self._sighting: Sighting | None = None
        self._held: Body | None = None
        self._resigned = False
        self.predecessor = ""
        """Who held the lease before this leadership and did not give it back; empty if nobody."""

    @property
    def lease_uid(self) -> str:
        """UID of the lease while it is held, else empty: no other installation has the same, in whatever cluster."""
        return "" if self._held is None else str(self._held["metadata"]["uid"])

    def resign(self) -> None:
        """Give the lease back soon and stand again: the next leader, be it this one, gets a later epoch."""
        self._resigned = True

    async def holds(self, epoch: int) -> bool:
        """Read the lease and tell whether it is this process's with this epoch.

        Raises:
            ClusterError: The lease cannot be read.
        """
        try:
            lease = await self._cluster.get(
                LEASES, namespace=self._namespace, name=self._name, timeout=self._timing.renew_deadline
            )
        except NotFound:
            return False
        return self._is_own(lease, epoch)

    def _is_own(self, lease: Body, epoch: int) -> bool:
        spec = lease.get("spec") or {}
        return spec.get("holderIdentity") == self._identity and spec.get("leaseTransitions") == epoch

    async def run(self, stop: asyncio.Event) -> None:
        """Stand for election until `stop` is set; then release the lease."""
        while not stop.is_set():
            epoch = await self._acquire(stop)
            if epoch is None:
                return
            _log.info("leading", extra={"epoch": epoch, "identity": self._identity})
            try:
                await self._lead(epoch, stop)
            finally:
                self._leadership.end()
                await self._on_lost()
                _log.info("no longer leading", extra={"epoch": epoch})
                await self._release()

    async def _acquire(self, stop: asyncio.Event) -> int | None:
        while not stop.is_set():
            try:
                epoch = await self._try_acquire()
            except ClusterError as error:
                _log.warning("cannot read or take the lease: %s", error)
                epoch = None
            if epoch is not None:
                return epoch
            await happens(stop, within=self._timing.retry_period * random.uniform(1.0, 1.2))
        return None

    async def _try_acquire(self) -> int | None:
        deadline = self._timing.renew_deadline
        try:
            lease = await self._cluster.get(LEASES, namespace=self._namespace, name=self._name, timeout=deadline)
        except NotFound:
            lease = None
        if lease is not None and not self._is_free(lease, self._clock.now()):
            return None
        epoch = _transitions(lease) + 1 if lease else await self._first_epoch()
        sent = self._clock.now()
        try:
            self._held = await self._take(lease, epoch, deadline)
        except (AlreadyExists, Conflict):
            return None
        self.predecessor = str((lease.get("spec") or {}).get("holderIdentity") or "") if lease else ""
        self._leadership.extend(Term(epoch=epoch, ends=sent + deadline))
        return epoch

    async def _first_epoch(self) -> int:
        floor = await self._epoch_floor()
        return floor + _AFTER_FLOOR if floor else 1

    def _is_free(self, lease: Body, now: float) -> bool:
        version = lease["metadata"]["uid"] + lease["metadata"]["resourceVersion"]
        if self._sighting is None or self._sighting.version != version:
            self._sighting = Sighting(version=version, at=now)
        return may_take(lease, self._sighting, now=now)

    async def _take(self, lease: Body | None, epoch: int, deadline: float) -> Body:
        wall = micro_timestamp(self._clock.wall())
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._timing.duration)),
            "acquireTime": wall,
            "renewTime": wall,
            "leaseTransitions": epoch,
        }
        if lease is not None:
            return await self._cluster.replace(LEASES, {**lease, "spec": spec}, timeout=deadline)
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return await self._cluster.create(LEASES, body, namespace=self._namespace, timeout=deadline)

    async def _lead(self, epoch: int, stop: asyncio.Event) -> None:
        self._resigned = False
        start = asyncio.create_task(self._begin(epoch), name="start of leadership")
        try:
            while not stop.is_set() and self._leadership.remaining() > 0:
                await happens(stop, within=min(self._timing.retry_period, self._leadership.remaining()))
                if start.done() and start.exception():
                    _log.error("cannot start to lead", exc_info=start.exception())
                    return
                if self._resigned or (not stop.is_set() and not await self._renew(epoch)):
                    return
        finally:
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await start

    async def _begin(self, epoch: int) -> None:
        # Called by the task itself: a leadership that is over before the task has begun calls nobody.
        await self._on_acquired(epoch)

    async def _renew(self, epoch: int) -> bool:
        """Renew once. False if somebody else has changed the lease."""
        if self._held is None:
            return False
        sent = self._clock.now()
        spec = {**self._held["spec"], "renewTime": micro_timestamp(self._clock.wall())}
        try:
            self._held = await self._cluster.replace(
                LEASES, {**self._held, "spec": spec}, timeout=max(0.001, self._leadership.remaining())
            )
        except (Conflict, NotFound) as error:
            return await self._recheck(epoch, error)
        except ClusterError as error:
            _log.warning("cannot renew the lease: %s", error)
            return True
        self._leadership.extend(Term(epoch=epoch, ends=sent + self._timing.renew_deadline))
        return True

    async def _recheck(self, epoch: int, error: ClusterError) -> bool:
        """After a conflict: was it a lost answer to an own write, or a label that somebody set, or a new holder?"""
        try:
            lease = await self._cluster.get(
                LEASES,
                namespace=self._namespace,
                name=self._name,
                timeout=max(0.001, self._leadership.remaining()),
            )
        except NotFound:
            _log.warning("the lease is gone: %s", error)
            return False
        except ClusterError as trouble:
            _log.warning("cannot read the lease: %s", trouble)
            return True
        if not self._is_own(lease, epoch):
            holder = (lease.get("spec") or {}).get("holderIdentity")
            _log.warning("the lease was taken", extra={"holder": holder})
            return False
        self._held = lease
        return True

    async def _release(self) -> None:
        """Let the next one take the lease at once. The epoch stays in it, so that it is never used twice."""
        held, self._held = self._held, None
        if held is None:
            return
        spec = {**held["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._cluster.replace(LEASES, {**held, "spec": spec}, timeout=min(2.0, self._timing.retry_period))
        except ClusterError as error:
            _log.info("the lease was not released: %s", error)


def _transitions(lease: Body) -> int:
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)
