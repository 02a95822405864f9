"""The elector and the fence against a real API server, whose conditions they rely on."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.cluster import Cluster as Port
from elasticjob.operator.errors import Conflict, NotLeader, Unavailable
from elasticjob.operator.leadership.elector import Elector, Leadership, LeaseTiming
from elasticjob.operator.leadership.fenced import FencedCluster
from elasticjob.operator.ports import Body, ClusterPort, Resource
from elasticjob.operator.resources import CONFIG_MAPS, LEASES
from tests.integration.operator.operators import eventually

TIMING = LeaseTiming.of(3.0)


class Candidate:
    """One elector and what it was told."""

    def __init__(
        self, cluster: ClusterPort, namespace: str, identity: str, *, floor: int = 0, begin_fails: bool = False
    ) -> None:
        self.leadership = Leadership(SystemClock())
        self.epochs: list[int] = []
        self.lost = 0
        self.stop = asyncio.Event()
        self._floor = floor
        self._begin_fails = begin_fails
        self._elector = Elector(
            cluster=cluster,
            namespace=namespace,
            name="elasticjob-operator",
            identity=identity,
            timing=TIMING,
            clock=SystemClock(),
            leadership=self.leadership,
            epoch_floor=self._epoch_floor,
            on_acquired=self._begin,
            on_lost=self._end,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._elector.run(self.stop))

    async def leave(self) -> None:
        self.stop.set()
        if self._task is not None:
            await asyncio.wait_for(self._task, 10)

    def resign(self) -> None:
        self._elector.resign()

    @property
    def predecessor(self) -> str:
        return self._elector.predecessor

    def leads(self) -> bool:
        return self.leadership.epoch is not None

    async def _epoch_floor(self) -> int:
        return self._floor

    async def _begin(self, epoch: int) -> None:
        self.epochs.append(epoch)
        if self._begin_fails:
            raise RuntimeError("cannot start")

    async def _end(self) -> None:
        self.lost += 1


class Pausable:
    """A port whose way to the API server can be cut."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.is_cut = False

    async def _guard(self, call: Awaitable[Any], timeout: float | None) -> Any:
        if self.is_cut:
            asyncio.ensure_future(call).cancel()
            await asyncio.sleep(timeout or 10)
            raise Unavailable("no answer")
        return await call

    async def get(self, resource: Resource, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        body: Body = await self._guard(self._port.get(resource, namespace=namespace, name=name), timeout)
        return body

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        created: Body = await self._guard(self._port.create(resource, body, namespace=namespace), timeout)
        return created

    async def replace(
        self, resource: Resource, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        replaced: Body = await self._guard(self._port.replace(resource, body, subresource=subresource), timeout)
        return replaced

    list = patch = delete = get_raw = None  # an elector uses none of these


@pytest.fixture
async def candidate(port: Port, namespace: str) -> Any:
    """Makes candidates and lets them leave in the end."""
    made: list[Candidate] = []

    def make(identity: str, *, cluster: ClusterPort | None = None, **more: Any) -> Candidate:
        one = Candidate(cluster or port, namespace, identity, **more)
        made.append(one)
        return one

    yield make
    for one in made:
        await one.leave()


Make = Callable[..., Candidate]


async def lease(port: Port, namespace: str) -> Mapping[str, Any]:
    body = await port.get(LEASES, namespace=namespace, name="elasticjob-operator")
    spec: Mapping[str, Any] = body["spec"]
    return spec


async def test_the_first_epoch_is_one(candidate: Make, port: Port, namespace: str) -> None:
    one = candidate("a")
    one.start()
    await eventually(lambda: one.epochs == [1], what="a leads")
    stored = await lease(port, namespace)
    assert (stored["holderIdentity"], stored["leaseTransitions"]) == ("a", 1)


async def test_of_two_only_one_leads(candidate: Make) -> None:
    both = [candidate("a"), candidate("b")]
    for one in both:
        one.start()
    await eventually(lambda: any(one.leads() for one in both), what="somebody leads")
    for _ in range(40):
        assert sum(one.leads() for one in both) <= 1
        await asyncio.sleep(0.05)


async def test_a_leader_that_leaves_is_followed_at_once_with_a_new_epoch(candidate: Make) -> None:
    first, second = candidate("a"), candidate("b")
    first.start()
    await eventually(first.leads, what="a leads")
    second.start()
    await first.leave()
    assert not first.leads()
    assert first.lost == 1
    await eventually(lambda: second.epochs == [2], what="b leads")
    assert not second.predecessor


async def test_a_holder_that_returns_gets_a_new_epoch_too(candidate: Make) -> None:
    first = candidate("a")
    first.start()
    await eventually(first.leads, what="a leads")
    await first.leave()
    again = candidate("a")
    again.start()
    await eventually(lambda: again.epochs == [2], what="a leads again")


async def test_a_leader_that_is_cut_off_stops_before_another_leads(candidate: Make, port: Port, namespace: str) -> None:
    way = Pausable(port)
    first, second = candidate("a", cluster=way), candidate("b")
    first.start()
    await eventually(first.leads, what="a leads")
    second.start()
    way.is_cut = True
    while not second.leads():
        assert not (first.leads() and second.leads())
        await asyncio.sleep(0.01)
    assert not first.leads()
    await eventually(lambda: second.epochs == [2], what="b is told")
    assert second.predecessor == "a"
    late = FencedCluster(port, leadership=first.leadership, timeout=5)
    with pytest.raises(NotLeader):
        await late.create(CONFIG_MAPS, {"metadata": {"name": "late"}}, namespace=namespace)
    way.is_cut = False


async def test_a_write_of_a_former_leader_that_was_under_way_is_refused_by_the_data(port: Port, namespace: str) -> None:
    created = await port.create(
        CONFIG_MAPS, {"metadata": {"name": "state"}, "data": {"epoch": "1"}}, namespace=namespace
    )
    await port.replace(CONFIG_MAPS, {**created, "data": {"epoch": "2"}})
    with pytest.raises(Conflict):
        await port.replace(CONFIG_MAPS, {**created, "data": {"epoch": "1", "late": "yes"}})
    with pytest.raises(Conflict):
        await port.delete(CONFIG_MAPS, namespace=namespace, name="state", uid="another-uid")


async def test_a_label_on_the_lease_costs_no_leadership(candidate: Make, port: Port, namespace: str) -> None:
    one = candidate("a")
    one.start()
    await eventually(one.leads, what="a leads")
    patch = {"metadata": {"labels": {"team": "ops"}}}
    await port.patch(LEASES, patch, namespace=namespace, name="elasticjob-operator")
    await asyncio.sleep(TIMING.duration * 1.5)
    assert one.leads()
    assert one.epochs == [1]


async def test_a_deleted_lease_does_not_bring_old_epochs_back(candidate: Make, port: Port, namespace: str) -> None:
    one = candidate("a", floor=7)
    one.start()
    await eventually(lambda: one.epochs != [], what="a leads")
    assert one.epochs[0] > 7
    stored = await port.get(LEASES, namespace=namespace, name="elasticjob-operator")
    await port.delete(LEASES, namespace=namespace, name="elasticjob-operator", uid=stored["metadata"]["uid"])
    await eventually(lambda: one.lost == 1, what="a notices")


async def test_a_leader_that_cannot_start_gives_the_lease_back(candidate: Make) -> None:
    broken = candidate("a", begin_fails=True)
    broken.start()
    await eventually(lambda: broken.lost >= 1, what="a gives up")


async def test_a_leader_that_resigns_stands_again_with_the_next_epoch(candidate: Make) -> None:
    one = candidate("a")
    one.start()
    await eventually(one.leads, what="a leads")
    one.resign()
    await eventually(lambda: one.epochs == [1, 2] and one.leads(), what="a leads again")
    assert one.lost == 1
