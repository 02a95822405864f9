"""One owner at a time, with a number that tells owners apart: a Kubernetes Lease as owner and *epoch*.

A Lease fences nothing by itself. It yields an epoch (`leaseTransitions`) that grows with each change of owner; the data
that the owner writes must carry the epoch, and a new owner first raises it there by compare-and-set. The API server
enforces none of the Lease's fields, so every write here is a compare-and-set by UID and resourceVersion.

Invariants:
- no clock of another machine is trusted: a foreign Lease has expired when *we* have not seen it change for its whole
  duration, on our monotonic clock;
- we hold the Lease only up to `renew_deadline` seconds after the moment *before* the last successful renewal was sent,
  which is earlier than anybody else may take it;
- the epoch never falls below what we have seen, or below `minimum_epoch`, even when the object is made anew.
"""

import contextlib
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob.rendezvous.backends.kubernetes_objects import AlreadyExists, Conflict

DEFAULT_DURATION = 15
DEFAULT_RENEW_DEADLINE = 10.0


class Leases(Protocol):
    """The Leases of one namespace; the same port as `ConfigMaps`, with the same errors."""

    def read(self, name: str) -> dict[str, Any] | None:
        """The object, or None when there is none of this name."""

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object; raises `AlreadyExists`."""

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write an object that carries its UID and resourceVersion; raises `Conflict`."""


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """What matters of a Lease. `version` is its UID and resourceVersion: any change of the object changes it."""

    version: tuple[str, str]
    holder: str
    duration: float
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The last change of the Lease that we saw, and when (monotonic seconds)."""

    view: LeaseView
    since: float


def view_of(body: dict[str, Any]) -> LeaseView:
    """Read a Lease; fields that are not set count as no holder, no duration and epoch 0."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    return LeaseView(
        version=(metadata["uid"], metadata["resourceVersion"]),
        holder=spec.get("holderIdentity") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
        epoch=int(spec.get("leaseTransitions") or 0),
    )


def observe(last: Observation | None, view: LeaseView, now: float) -> Observation:
    """Note a Lease as it is now; the clock starts anew only if it has changed."""
    if last is not None and last.view.version == view.version:
        return last
    return Observation(view=view, since=now)


def may_take(seen: Observation, now: float) -> bool:
    """Whether the Lease is free: released by its holder, or not renewed for its whole duration before our eyes."""
    return not seen.view.holder or now >= seen.since + seen.view.duration


class LeaseEpoch:
    """Takes part in the contest for one Lease. Not thread-safe: one thread calls `try_hold` every few seconds."""

    def __init__(
        self,
        leases: Leases,
        *,
        name: str,
        identity: str,
        duration: int = DEFAULT_DURATION,
        renew_deadline: float = DEFAULT_RENEW_DEADLINE,
        minimum_epoch: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send nothing yet.

        Args:
            leases: The Leases of a namespace.
            name: Name of the Lease.
            identity: Unique to this object, not only to this pod: a holder of the same name counts as somebody else.
            duration: Seconds that others must wait, from when they last saw a renewal, before they take over.
            renew_deadline: Seconds that we consider ourselves the owner after a renewal; less than `duration`.
            minimum_epoch: The epoch found in the data; ours will be greater.
            clock: Monotonic seconds.

        Raises:
            ValueError: The times do not fit together, or there is no identity.
        """
        if not identity:
            raise ValueError("identity must be a non-empty string")
        if not 0 < renew_deadline < duration:
            raise ValueError(
                f"renew_deadline must be greater than 0 and less than duration {duration}, not {renew_deadline}"
            )
        self._leases = leases
        self._name = name
        self._identity = identity
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._clock = clock
        self._floor = minimum_epoch
        self._seen: Observation | None = None
        self._uid: str | None = None
        self._epoch = 0
        self._held_until = float("-inf")

    @property
    def epoch(self) -> int | None:
        """The epoch we own now, or None when we do not own the Lease (any more)."""
        return self._epoch if self._clock() < self._held_until else None

    def try_hold(self) -> int | None:
        """Renew the Lease, or take it if it is free; one read and at most one write.

        Returns:
            The epoch we own, or None when somebody else does.

        Raises:
            RendezvousConnectionError: The API server did not answer; `epoch` still tells whether we own the Lease.
        """
        sent = self._clock()
        body = self._leases.read(self._name)
        if body is None:
            return self._write(lambda: self._leases.create(self._new_body()), self._floor + 1, sent)
        self._seen = observe(self._seen, view_of(body), self._clock())
        self._floor = max(self._floor, self._seen.view.epoch)
        if self._is_ours(self._seen.view):
            return self._write(lambda: self._leases.replace(self._renewed(body)), self._epoch, sent)
        self._lose()
        if not may_take(self._seen, self._clock()):
            return None
        return self._write(lambda: self._leases.replace(self._taken(body)), self._floor + 1, sent)

    def release(self) -> None:
        """Give the Lease up at once, so that nobody has to wait for it to expire; does nothing if we do not own it.

        Raises:
            RendezvousConnectionError: The API server did not answer; the Lease will expire.
        """
        owned, self._held_until = self._uid is not None, float("-inf")
        body = self._leases.read(self._name) if owned else None
        if body is None or not self._is_ours(view_of(body)):
            return
        released = {**body, "spec": {**body["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        self._lose()
        with contextlib.suppress(Conflict):
            self._leases.replace(_clean(released))

    def _write(self, write: Callable[[], dict[str, Any]], epoch: int, sent: float) -> int | None:
        try:
            view = view_of(write())
        except (AlreadyExists, Conflict):
            self._lose()
            return None
        self._seen = observe(self._seen, view, self._clock())
        self._floor = max(self._floor, epoch)
        self._uid, self._epoch, self._held_until = view.version[0], epoch, sent + self._renew_deadline
        return self.epoch

    def _is_ours(self, view: LeaseView) -> bool:
        # Not by resourceVersion: an annotation from outside, or a renewal whose answer was lost, changes that as well.
        return self._uid == view.version[0] and view.holder == self._identity and view.epoch == self._epoch

    def _lose(self) -> None:
        self._uid = None
        self._held_until = float("-inf")

    def _new_body(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": self._spec(self._floor + 1, acquired=_now()),
        }

    def _renewed(self, body: dict[str, Any]) -> dict[str, Any]:
        return _clean({**body, "spec": {**body["spec"], "renewTime": _now()}})

    def _taken(self, body: dict[str, Any]) -> dict[str, Any]:
        spec = {**(body.get("spec") or {}), **self._spec(self._floor + 1, acquired=_now())}
        return _clean({**body, "spec": spec})

    def _spec(self, epoch: int, *, acquired: str) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration,
            "leaseTransitions": epoch,
            "acquireTime": acquired,
            "renewTime": acquired,
        }


def _now() -> str:
    # For people only; no decision reads it.
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _clean(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}
