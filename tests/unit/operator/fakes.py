"""Stand-ins for the world of the operator: a clock that is set, and an API port whose answers are scripted.

Nothing here claims to behave like an API server; what depends on its conditions is tested against a real one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticjob.operator.ports import Body, ObjectList, ObjectReference, Occurrence, Resource
from elasticjob.rendezvous.orders import RunOrders, RunView

START = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self._started = now
        self._now = now

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self._now - self._started)

    def advance(self, seconds: float) -> None:
        self._now += seconds


@dataclass(frozen=True)
class Call:
    """One call that was made."""

    verb: str
    resource: Resource | None
    name: str
    body: Mapping[str, Any] | None = None


Answer = Callable[[Call], Body]


@dataclass
class ScriptedCluster:
    """Records calls; `answer` decides what each one returns or raises."""

    answer: Answer = lambda call: dict(call.body or {})
    calls: list[Call] = field(default_factory=list)

    def made(self, verb: str, resource: Resource) -> list[Call]:
        return [call for call in self.calls if (call.verb, call.resource) == (verb, resource)]

    def _do(self, verb: str, resource: Resource | None, name: str, body: Mapping[str, Any] | None = None) -> Body:
        call = Call(verb, resource, name, body)
        self.calls.append(call)
        return self.answer(call)

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        return self._do("get", resource, name)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        label_selector: str = "",
        timeout: float | None = None,
    ) -> ObjectList:
        listed = self._do("list", resource, namespace or "")
        return ObjectList(items=listed["items"], resource_version=listed["resourceVersion"])

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        return self._do("create", resource, body["metadata"].get("name", ""), body)

    async def replace(
        self, resource: Resource, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        return self._do("replace", resource, body["metadata"]["name"], body)

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
        return self._do("patch", resource, name, patch)

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
        return self._do("delete", resource, name, {"uid": uid})

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        return self._do("get", None, path)


class FakeHost:
    """A rendezvous host that remembers its orders and shows the views that it is given."""

    def __init__(self) -> None:
        self.orders: dict[str, RunOrders] = {}
        self.forgotten: list[str] = []
        self.erased: list[str] = []
        self.views: dict[str, RunView] = {}

    def apply(self, orders: RunOrders) -> None:
        self.orders[orders.run_id] = orders

    def view(self, run_id: str) -> RunView | None:
        return self.views.get(run_id)

    def forget(self, run_id: str) -> None:
        self.orders.pop(run_id, None)
        self.forgotten.append(run_id)

    def erase(self, orders: RunOrders) -> None:
        self.orders.pop(orders.run_id, None)
        self.erased.append(orders.run_id)


class Sink:
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.emitted: list[Occurrence] = []

    def emit(self, occurrence: Occurrence) -> None:
        self.emitted.append(occurrence)


def job_reference(uid: str = "job-uid", name: str = "digits") -> ObjectReference:
    return ObjectReference(
        api_version="elasticjob.dev/v1alpha1", kind="ElasticJob", namespace="team", name=name, uid=uid
    )


def occurrence(
    reason: str = "Scaled", *, note: str = "a note", warning: bool = False, job: ObjectReference | None = None
) -> Occurrence:
    return Occurrence(regarding=job or job_reference(), reason=reason, action="Do", note=note, warning=warning)
