"""Which states in etcd are erased, and that nothing waits for it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from elasticjob.operator import errors
from elasticjob.operator.hosting import state_sweep
from elasticjob.operator.hosting.state_owner import StateOwner, with_owner
from elasticjob.operator.hosting.state_sweep import StateSweep, job_uid
from elasticjob.operator.metrics import Metrics
from elasticjob.rendezvous.backend import Token
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.orders import RunOrders
from tests.unit.operator.fakes import ScriptedCluster
from tests.unit.operator.hosted import orders

OURS = "lease-1"


class States:
    """The states of one etcd in memory. `trouble` is raised when names are asked for, one after the other."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.trouble: list[Exception] = []
        self.pages = 0
        self.changed_after_read: set[str] = set()
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def keep(self, name: str, *, job: str = "digits", installation: str = OURS) -> None:
        owner = StateOwner(installation=installation, namespace="train", job=job)
        self.values[name] = with_owner(b"{}", owner)

    def names(self, *, after: str, limit: int) -> Sequence[str]:
        self.is_asked.set()
        self.answers.wait(20)
        if self.trouble:
            raise self.trouble.pop(0)
        self.pages += 1
        return sorted(name for name in self.values if name > after)[:limit]

    def read(self, name: str) -> tuple[bytes, Token] | None:
        value = self.values.get(name)
        if value is not None and name in self.changed_after_read:
            self.values[name] = value.replace(b"{}", b'{"written":"since"}')
        return None if value is None else (value, (name, value))

    def erase(self, token: Token) -> bool:
        name, value = token
        if self.values.get(name) != value:
            return False
        del self.values[name]
        return True


class World:
    """One sweep over places in memory; `jobs` are those that the API server knows: UID by name."""

    def __init__(self) -> None:
        self.places: dict[str, States] = {"etcd": States()}
        self.jobs: dict[str, str] = {}
        self.served: set[str] = set()
        self.refused: set[str] = set()
        self.opened: list[str] = []
        self.leads = True
        self.metrics = Metrics()
        self.sweep = StateSweep(
            installation=OURS,
            open_states=self._open,
            job_uid=self._job_uid,
            is_served=self.served.__contains__,
            require_leadership=self._require,
            metrics=self.metrics,
            pauses=(0.0, 0.0, 0.0),
        )

    @property
    def states(self) -> States:
        return self.places["etcd"]

    @property
    def swept(self) -> float | None:
        return self.metrics.registry.get_sample_value("elasticjob_rendezvous_states_swept_total")

    async def look(self, **conf: str) -> None:
        """Serve a run from an etcd, and wait until that has been looked through."""
        self.sweep.note(orders(1, backend="etcd", backend_conf={"endpoint": "etcd", **conf}))
        await asyncio.sleep(0)
        await asyncio.gather(*self.sweep._tasks)

    def _open(self, run: RunOrders) -> States:
        self.opened.append(run.backend_conf["endpoint"])
        return self.places[run.backend_conf["endpoint"]]

    async def _job_uid(self, owner: StateOwner) -> str | None:
        if owner.job in self.refused:
            raise errors.Forbidden("not yours")
        return self.jobs.get(owner.job)

    def _require(self) -> None:
        if not self.leads:
            raise errors.NotLeader("another one leads")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.sweep.stop()


async def test_the_state_of_a_job_that_is_gone_is_erased_and_counted(world: World) -> None:
    world.states.keep("uid-gone")
    await world.look()
    assert world.states.values == {}
    assert world.swept == 1


async def test_the_state_of_an_earlier_job_of_the_same_name_is_erased(world: World) -> None:
    world.states.keep("uid-earlier")
    world.jobs["digits"] = "uid-now"
    await world.look()
    assert world.states.values == {}


async def test_states_of_jobs_that_are_there_stay(world: World) -> None:
    world.states.keep("uid-served")
    world.states.keep("uid-suspended", job="letters")
    world.served.add("uid-served")
    world.jobs["letters"] = "uid-suspended"
    await world.look()
    assert world.states.values.keys() == {"uid-served", "uid-suspended"}
    assert world.swept == 0


async def test_states_of_other_installations_and_of_nobody_stay(world: World) -> None:
    world.states.keep("uid-theirs", installation="lease-2")
    world.states.values["peer-run"] = b"{}"
    await world.look()
    assert world.states.values.keys() == {"uid-theirs", "peer-run"}


async def test_a_state_stays_while_nobody_may_say_whether_its_job_is_there(world: World) -> None:
    world.states.keep("uid-elsewhere", job="elsewhere")
    world.states.keep("uid-gone")
    world.refused.add("elsewhere")
    await world.look()
    assert world.states.values.keys() == {"uid-elsewhere"}


async def test_a_state_that_was_written_since_it_was_read_stays(world: World) -> None:
    world.states.keep("uid-written")
    world.states.changed_after_read.add("uid-written")
    await world.look()
    assert world.states.values.keys() == {"uid-written"}
    assert world.swept == 0


async def test_all_pages_are_looked_through(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sweep, "PAGE", 2)
    for number in range(5):
        world.states.keep(f"uid-{number}", job=f"digits-{number}")
    world.jobs["digits-2"] = "uid-2"
    await world.look()
    assert world.states.values.keys() == {"uid-2"}
    assert world.states.pages == 4


async def test_what_fails_is_tried_again(world: World) -> None:
    world.states.keep("uid-gone")
    world.states.trouble = [RendezvousConnectionError("no route"), errors.Unavailable("no API server")]
    await world.look()
    assert world.states.values == {}


async def test_what_fails_again_and_again_is_given_up_and_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.states.keep("uid-gone")
    world.states.trouble = [RendezvousConnectionError("no route")] * 4
    await world.look()
    assert world.states.values.keys() == {"uid-gone"}
    assert len(world.states.trouble) == 1
    assert "may stay behind" in caplog.text
    assert "no route" in caplog.text


async def test_a_place_is_looked_through_once_whoever_uses_it(world: World) -> None:
    await world.look()
    await world.look(read_timeout="7")
    assert world.opened == ["etcd"]
    await world.look(prefix="/another")
    assert world.opened == ["etcd", "etcd"]


async def test_there_is_a_limit_of_places(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sweep, "MOST_PLACES", 2)
    for number in range(4):
        await world.look(prefix=f"/{number}")
    assert len(world.opened) == 2


async def test_whoever_does_not_lead_erases_nothing(world: World) -> None:
    world.states.keep("uid-gone")
    world.leads = False
    await world.look()
    assert world.states.values.keys() == {"uid-gone"}


async def test_an_etcd_that_does_not_answer_holds_up_nobody_who_serves_or_stops(world: World) -> None:
    world.states.answers.clear()
    with contextlib.ExitStack() as stack:
        stack.callback(world.states.answers.set)
        world.sweep.note(orders(1, backend="etcd", backend_conf={"endpoint": "etcd"}))
        assert await asyncio.to_thread(world.states.is_asked.wait, 20)
        await asyncio.wait_for(world.sweep.stop(), 20)


async def test_the_api_server_is_asked_for_the_job_by_name() -> None:
    owner = StateOwner(installation=OURS, namespace="train", job="digits")

    def none(_: object) -> Any:
        raise errors.NotFound("no such job")

    there: Any = ScriptedCluster(lambda call: {"metadata": {"name": call.name, "uid": "uid-1"}})
    gone: Any = ScriptedCluster(none)
    assert await job_uid(there, owner) == "uid-1"
    assert await job_uid(gone, owner) is None
