"""States that the host cannot read at first, and those that it removes."""

import asyncio
import threading
from typing import Any

import pytest

from elasticjob.operator.hosting.host import HostLimits
from elasticjob.operator.hosting.state import Run, StateKeeper, Told
from elasticjob.operator.metrics import Metrics
from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.orders import RunOrders
from elasticjob.rendezvous.protocol import JoinFormed, JoinRequest
from elasticjob.rendezvous.state import State
from tests.unit.operator.hosted import RUN, Cell, Setting, orders, serving, unreachable

JOIN = JoinRequest(incarnation="a", address="10.0.0.1", pid=1, wait=10.0)


class Kept(Cell):
    """A state that stays behind unless it is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.is_deleted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def delete_state(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.value = None
        self._loop.call_soon_threadsafe(self.is_deleted.set)


class ByEndpoint(Setting):
    """A state is where the endpoint in the orders says; nobody listens at `wrong`."""

    def backend(self, run: RunOrders) -> RendezvousBackend:
        cell = self.cells.setdefault(run.backend_conf["endpoint"], Cell())
        if run.backend_conf["endpoint"] == "wrong":
            cell.trouble = unreachable()
        return cell


class OnItsWay(Cell):
    """A write, once it is told to, is on its way for as long as a test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.began, self.arrives = threading.Event(), threading.Event()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if self.is_slow:
            self.began.set()
            self.arrives.wait(20)
        return super().set_state(state, token)


class Silent(Setting):
    """A kind of backend that does not answer before it is released."""

    def __init__(self, release: threading.Event) -> None:
        super().__init__()
        self._release = release

    def backend(self, run: RunOrders) -> RendezvousBackend:
        if run.backend == "silent":
            self._release.wait(20)
        return super().backend(run)


class Deaf(Setting):
    """Endpoints that do not answer before they are released, and others."""

    def __init__(self, release: threading.Event) -> None:
        super().__init__()
        self._release = release

    def backend(self, run: RunOrders) -> RendezvousBackend:
        if run.backend_conf["endpoint"].startswith("deaf"):
            self._release.wait(20)
        return super().backend(run)


class Reads(Cell):
    """Reads are counted, and take as long as a test likes once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.is_slow = False
        self.began, self.arrives = threading.Event(), threading.Event()

    def get_state(self) -> tuple[bytes, Token] | None:
        self.count += 1
        if self.is_slow:
            self.began.set()
            self.arrives.wait(20)
        return super().get_state()


async def kept() -> tuple[Setting, Kept]:
    setting, cell = Setting(), Kept()
    setting.cells[RUN] = cell
    return setting, cell


async def test_a_state_that_cannot_be_read_is_told_and_promises_nothing() -> None:
    setting = Setting(cells={RUN: Cell()})
    setting.cells[RUN].trouble = unreachable()
    async with serving(setting, orders(1)) as hosted:
        view = await hosted.viewed(lambda view: view.details)
        assert not view.taken_over
        assert not view.failed
        assert "connection refused" in view.details["storeError"]
        setting.cells[RUN].trouble = None
        assert not (await hosted.viewed(lambda view: view.taken_over)).details


async def test_an_endpoint_may_be_corrected_until_the_state_was_read() -> None:
    setting = ByEndpoint()
    async with serving(setting, orders(1, backend_conf={"endpoint": "wrong"})) as hosted:
        await hosted.viewed(lambda view: view.details)
        hosted.host.apply(orders(1, backend_conf={"endpoint": "right"}))
        await hosted.viewed(lambda view: view.taken_over)
        hosted.host.apply(orders(1, backend_conf={"endpoint": "other"}))
        assert isinstance(await hosted.direct_join(RUN, "uid-0", JOIN), JoinFormed)
        assert setting.cells["right"].writes == 2
        assert "other" not in setting.cells


async def test_the_state_of_a_job_that_is_gone_is_deleted_where_nobody_else_does() -> None:
    setting, cell = await kept()
    async with serving(setting, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        hosted.host.erase(orders(1))
        await asyncio.wait_for(cell.is_deleted.wait(), 5)
        assert hosted.host.view(RUN) is None


async def test_a_run_without_nodes_keeps_its_state_until_its_job_is_gone() -> None:
    setting, cell = await kept()
    async with serving(setting, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        hosted.host.forget(RUN)
        await asyncio.sleep(0.05)
        assert cell.value is not None
        hosted.host.erase(orders(1))
        await asyncio.wait_for(cell.is_deleted.wait(), 5)


async def test_the_state_of_a_job_that_never_ran_under_this_leader_is_deleted_with_it() -> None:
    setting, cell = await kept()
    async with serving(setting) as hosted:
        hosted.host.erase(orders(1))
        await asyncio.wait_for(cell.is_deleted.wait(), 5)


async def test_a_state_that_cannot_be_deleted_is_tried_again() -> None:
    setting, cell = await kept()
    async with serving(setting, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        cell.trouble = unreachable()
        hosted.host.erase(orders(1))
        await asyncio.sleep(0.1)
        cell.trouble = None
        await asyncio.wait_for(cell.is_deleted.wait(), 5)


async def test_a_server_that_does_not_answer_holds_up_no_run_of_another_kind() -> None:
    release = threading.Event()
    setting = Silent(release)
    stuck = [orders(0, run_id=f"stuck-{number}", backend="silent") for number in range(20)]
    async with serving(setting, *stuck, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        release.set()


@pytest.mark.parametrize("common", [{"namespace": "other"}, {"backend_conf": {"endpoint": "deaf"}}])
async def test_neither_a_namespace_nor_an_endpoint_takes_all_threads(common: dict[str, Any]) -> None:
    release = threading.Event()
    setting = Deaf(release)
    stuck = []
    for number in range(20):
        apart = {"namespace": f"namespace-{number}", "backend_conf": {"endpoint": f"deaf-{number}"}}
        stuck.append(orders(0, run_id=f"stuck-{number}", **{**apart, **common}))
    async with serving(setting, *stuck, orders(1, backend_conf={"endpoint": "right"})) as hosted:
        try:
            await hosted.viewed(lambda view: view.taken_over)
        finally:
            release.set()


async def test_who_waits_for_a_thread_is_told_so() -> None:
    release = threading.Event()
    stuck = [orders(0, run_id=f"stuck-{number}", backend_conf={"endpoint": "deaf"}) for number in range(20)]
    late = orders(1, backend_conf={"endpoint": "deaf"})
    setting = Deaf(release)
    setting.limits = HostLimits(io_patience=0.1)
    async with serving(setting, *stuck, late) as hosted:
        try:
            await hosted.viewed(lambda view: "no answer within" in view.details.get("storeError", ""))
        finally:
            release.set()


async def test_a_late_write_is_counted_although_its_leader_has_ended_meanwhile() -> None:
    cell = OnItsWay()
    setting = Setting(cells={RUN: cell})
    async with serving(setting, orders(1)) as hosted:
        await hosted.viewed(lambda view: view.taken_over)
        cell.is_slow = True
        joining = asyncio.create_task(hosted.direct_join(RUN, "uid-0", JOIN))
        await asyncio.to_thread(cell.began.wait, 20)
    await asyncio.gather(joining, return_exceptions=True)
    cell.overwrite(encode(State(round=1, epoch=9)))
    cell.arrives.set()

    def count() -> float | None:
        return setting.metrics.registry.get_sample_value("elasticjob_rendezvous_stale_writes_refused_total")

    async with asyncio.timeout(20):
        while True:
            if count() == 1:
                break
            await asyncio.sleep(0.005)
    assert cell.writes == 1


async def held() -> bool:
    return True


def run_with(told: list[str]) -> tuple[StateKeeper, Run, Reads]:
    """A run whose state is read by nobody yet, and a keeper that is impatient."""

    def tell(run: Run, *message: object) -> None:
        told.append(str(message))

    cell = Reads()
    keeper = StateKeeper(
        epoch=3,
        backend_factory=lambda run: cell,
        require_leadership=lambda: None,
        holds_lease=held,
        threads=2,
        patience=0.01,
        told=Told(taken_over=tell, saved=tell, in_trouble=tell, corrupt=tell, in_doubt=tell, lost=tell),
        metrics=Metrics(),
    )
    return keeper, Run(orders=orders(1)), cell


async def has_looked(run: Run) -> None:
    async with asyncio.timeout(20):
        while True:
            if not run.is_verifying:
                return
            await asyncio.sleep(0.005)


async def test_at_most_one_look_at_a_state_waits_for_a_slow_server() -> None:
    told: list[str] = []
    keeper, run, cell = run_with(told)
    cell.is_slow = True
    for _ in range(3):
        keeper.verify(run)
        run.verified_at = float("-inf")
    assert await asyncio.to_thread(cell.began.wait, 20)
    keeper.verify(run)
    cell.arrives.set()
    await has_looked(run)
    assert cell.count == 1
    run.verified_at = float("-inf")
    keeper.verify(run)
    await has_looked(run)
    assert cell.count == 2
    assert not told, "nothing is to be stored, so there is no trouble with storing"
    await keeper.stop()


async def test_a_look_at_a_state_that_fails_is_no_trouble_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    keeper, run, cell = run_with(told)
    cell.trouble = unreachable()
    keeper.verify(run)
    await has_looked(run)
    assert "not verified: RendezvousConnectionError" in caplog.text
    assert not told
    await keeper.stop()
