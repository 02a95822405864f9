"""The elector's decisions. How it competes for a lease is tested against a real API server."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.app import highest_epoch
from elasticjob.operator.errors import NotFound, NotLeader, Unavailable
from elasticjob.operator.leadership.elector import Elector, Leadership, LeaseTiming, Sighting, Term, may_take
from elasticjob.operator.settings import Settings
from tests.unit.operator.fakes import Call, FakeClock, ScriptedCluster


def lease(holder: str = "other", duration: int | None = 15, **more: Any) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": duration} | more}


def test_a_lease_that_changes_is_never_taken() -> None:
    assert not may_take(lease(), Sighting(version="1", at=100), now=114.9)


def test_a_lease_is_taken_after_its_duration_without_a_change() -> None:
    assert may_take(lease(), Sighting(version="1", at=100), now=115)


def test_the_times_in_the_lease_do_not_matter() -> None:
    ancient = lease(renewTime="1999-01-01T00:00:00.000000Z")
    assert not may_take(ancient, Sighting(version="1", at=100), now=101)


def test_a_released_lease_is_taken_at_once() -> None:
    assert may_take(lease(holder=""), Sighting(version="1", at=100), now=100)


def test_an_empty_lease_is_taken_at_once() -> None:
    assert may_take({"metadata": {}}, Sighting(version="1", at=100), now=100)


@given(st.floats(min_value=2, max_value=3600))
def test_the_holder_stops_before_anybody_may_take_over(duration: float) -> None:
    timing = LeaseTiming.of(duration)
    assert timing.retry_period < timing.renew_deadline < timing.duration
    # The record has whole seconds; rounding must not let others in early.
    assert max(1, round(timing.duration)) > timing.renew_deadline


def test_leadership_ends_by_the_clock_alone() -> None:
    clock = FakeClock()
    leadership = Leadership(clock)
    leadership.extend(Term(epoch=7, ends=clock.now() + 10))
    assert (leadership.epoch, leadership.require()) == (7, 10)
    clock.advance(10)
    assert leadership.epoch is None
    with pytest.raises(NotLeader):
        leadership.require()


def test_leadership_can_be_given_up() -> None:
    clock = FakeClock()
    leadership = Leadership(clock)
    leadership.extend(Term(epoch=1, ends=clock.now() + 10))
    leadership.end()
    assert leadership.remaining() == 0


def test_who_never_led_may_not_write() -> None:
    with pytest.raises(NotLeader):
        Leadership(FakeClock()).require()


def job_with(**status: Any) -> dict[str, Any]:
    return {"status": status}


async def test_the_floor_of_epochs_is_the_highest_that_any_status_carries() -> None:
    jobs = [
        {},
        job_with(),
        job_with(rendezvous={}),
        job_with(rendezvous={"epoch": 7}),
        job_with(rendezvous={"epoch": 3}),
    ]
    cluster = ScriptedCluster(answer=lambda call: {"items": jobs, "resourceVersion": "1"})
    assert await highest_epoch(cluster, Settings()) == 7


@pytest.mark.parametrize("forged", [2**62, 2**31 - 1, -5, "9", True, [], {"a": 1}])
async def test_a_forged_status_neither_exhausts_nor_breaks_the_epochs(forged: object) -> None:
    jobs = [job_with(rendezvous={"epoch": forged}), job_with(rendezvous={"epoch": 7}), job_with(rendezvous=[forged])]
    jobs.append({"status": forged})
    cluster = ScriptedCluster(answer=lambda call: {"items": jobs, "resourceVersion": "1"})
    assert await highest_epoch(cluster, Settings()) == 7


async def test_without_jobs_there_is_no_floor() -> None:
    cluster = ScriptedCluster(answer=lambda call: {"items": [], "resourceVersion": "1"})
    assert await highest_epoch(cluster, Settings(watch_namespaces=("a", "b"))) == 0
    assert [call.name for call in cluster.calls] == ["a", "b"]


def elector_over(cluster: ScriptedCluster) -> Elector:
    async def nothing(epoch: int = 0) -> None:
        pass

    async def floor() -> int:
        return 0

    clock = FakeClock()
    return Elector(
        cluster=cluster,
        namespace="system",
        name="elasticjob-operator",
        identity="a",
        timing=LeaseTiming.of(15),
        clock=clock,
        leadership=Leadership(clock),
        epoch_floor=floor,
        on_acquired=nothing,
        on_lost=nothing,
    )


@pytest.mark.parametrize(
    ("held", "is_own"),
    [
        (lease("a", leaseTransitions=3), True),
        (lease("a", leaseTransitions=4), False),
        (lease("b", leaseTransitions=3), False),
        (lease("", leaseTransitions=3), False),
        ({}, False),
    ],
)
async def test_the_lease_says_who_leads(held: dict[str, Any], is_own: bool) -> None:
    assert await elector_over(ScriptedCluster(answer=lambda call: held)).holds(3) is is_own


async def test_a_lease_that_is_gone_is_nobodys_and_one_that_cannot_be_read_says_nothing() -> None:
    def gone(call: Call) -> dict[str, Any]:
        raise NotFound("no such Lease", status=404)

    def silent(call: Call) -> dict[str, Any]:
        raise Unavailable("no answer")

    assert not await elector_over(ScriptedCluster(answer=gone)).holds(3)
    with pytest.raises(Unavailable):
        await elector_over(ScriptedCluster(answer=silent)).holds(3)


async def test_a_leadership_that_is_over_at_once_begins_nothing() -> None:
    stop, clock, told = asyncio.Event(), FakeClock(), []

    def answer(call: Call) -> dict[str, Any]:
        if call.verb == "get":
            raise NotFound("no such Lease", status=404)
        stop.set()
        return dict(call.body or {})

    async def begin(epoch: int) -> None:
        told.append(epoch)

    async def end() -> None:
        told.append(0)

    async def floor() -> int:
        return 0

    elector = Elector(
        cluster=ScriptedCluster(answer=answer),
        namespace="system",
        name="elasticjob-operator",
        identity="a",
        timing=LeaseTiming.of(15),
        clock=clock,
        leadership=Leadership(clock),
        epoch_floor=floor,
        on_acquired=begin,
        on_lost=end,
    )
    await elector.run(stop)
    assert told == [0]
