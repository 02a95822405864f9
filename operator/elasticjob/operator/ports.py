"""What the operator's parts expect of the world, as protocols.

Decisions depend on these and never on an implementation: the API server is reached through `ClusterPort` alone, the
rendezvous through `RendezvousHost`, and time is read from a `Clock`. Bodies are plain JSON dictionaries in both
directions; nothing here knows the models of a client library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from elasticjob.rendezvous.orders import RunOrders, RunView

Body: TypeAlias = dict[str, Any]
"""One object of the API, as decoded from JSON."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A kind of object as it is addressed in the API, e.g. group `apps`, version `v1`, plural `deployments`."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """`version` for the core group, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, kw_only=True)
class ObjectList:
    """All objects that matched a list call, and the version of the collection that they were read at."""

    items: Sequence[Body]
    resource_version: str


class ClusterPort(Protocol):
    """The one way to the API server.

    Every call ends within its deadline (`timeout` in seconds, else the port's default) and raises only the errors of
    `elasticjob.operator.errors`. Nothing is retried here: what to do about a failure is decided where the call was
    made.
    """

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        """Read one object."""

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        timeout: float | None = None,
    ) -> ObjectList:
        """Read all objects of one namespace, or of all namespaces if it is None. The deadline is that of each page."""

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        """Create an object; `AlreadyExists` if the name is taken."""

    async def replace(
        self, resource: Resource, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        """Replace an object that was read before: `Conflict` if it changed since.

        The body must carry `metadata.resourceVersion`: an unconditional replace is refused with `ValueError`.
        """

    async def patch(
        self,
        resource: Resource,
        patch: Mapping[str, Any],
        *,
        namespace: str | None,
        name: str,
        subresource: str = "",
        timeout: float | None = None,
    ) -> Body:
        """Apply a JSON merge patch. If it carries `metadata.resourceVersion`, a changed object means `Conflict`."""

    async def delete(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        name: str,
        uid: str,
        grace_period: int | None = None,
        timeout: float | None = None,
    ) -> Body:
        """Delete exactly the object with this UID: `Conflict` if another one has taken the name since.

        Returns:
            The object as it is left, if it goes away by and by (a pod has its grace period), else a `Status`.
        """

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        """Read a non-resource URL that answers with a JSON object, e.g. `/openid/v1/jwks`."""


class RendezvousHost(Protocol):
    """The hosted rendezvous as the reconciler sees it. Thread-safe; never blocks the caller."""

    def apply(self, orders: RunOrders) -> None:
        """Take over what is wanted of one run; replaces earlier orders for it."""

    def view(self, run_id: str) -> RunView | None:
        """What the run looks like now; None while it is not known here."""

    def forget(self, run_id: str) -> None:
        """Drop a run that has no nodes (any more)."""

    def erase(self, orders: RunOrders) -> None:
        """Drop a run whose job is gone, and its state as far as the cluster does not see to that.

        The orders name the run and where its state is kept; it may never have been served here.
        """


@dataclass(frozen=True, kw_only=True)
class ObjectReference:
    """Names one object in an Event. `uid` may be empty where only the name is known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One thing that happened to a job, to be shown as a Kubernetes Event.

    Args:
        warning: True for type `Warning`, else `Normal`.
        reason: One of a fixed set of CamelCase words.
        action: What was done or tried, a verb.
        note: For people; cut to the API's limit by the poster.
    """

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    warning: bool = False
    related: ObjectReference | None = None


class EventSink(Protocol):
    """Takes occurrences to be shown as Events. Thread-safe; never blocks, never raises, may drop."""

    def emit(self, occurrence: Occurrence) -> None:
        """Queue one occurrence."""


class Clock(Protocol):
    """Time."""

    def now(self) -> float:
        """Monotonic seconds; only differences have a meaning."""

    def wall(self) -> datetime:
        """The time of day in UTC, for display only."""
