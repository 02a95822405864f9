"""The host: orders and views across threads, durable writes, take-over, and what happens when others write."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from elasticjob.operator.hosting import erased
from elasticjob.operator.hosting import state as state_module
from elasticjob.operator.hosting.host import HostLimits
from elasticjob.rendezvous.encoding import decode, encode
from elasticjob.rendezvous.orders import CloseReason, RunState
from elasticjob.rendezvous.protocol import (
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinFormed,
    JoinRequest,
    LeaveOutcome,
    LeaveRequest,
    ProtocolError,
)
from elasticjob.rendezvous.state import State
from tests.unit.operator.hosted import RUN, Cell, Hosted, Setting, join_body, node, orders, serving, unreachable
from tests.unit.operator.world import UID, World


def request(**changes: object) -> JoinRequest:
    fields = {"incarnation": "a", "address": "10.0.0.1", "pid": 1, "wait": 10.0, **changes}
    return JoinRequest(**fields)  # type: ignore[arg-type]


async def taken_over(hosted: Hosted) -> None:
    await hosted.viewed(lambda view: view.taken_over and not view.failed)


async def form(hosted: Hosted, nodes: int) -> list[JoinFormed]:
    await taken_over(hosted)
    answers = await asyncio.gather(*(hosted.direct_join(RUN, f"uid-{index}", request()) for index in range(nodes)))
    assert all(isinstance(answer, JoinFormed) for answer in answers)
    return [answer for answer in answers if isinstance(answer, JoinFormed)]


async def test_a_round_costs_one_write_beside_the_one_at_take_over() -> None:
    async with serving(None, orders(3)) as hosted:
        answers = await form(hosted, 3)
        assert sorted(answer.rank for answer in answers) == [0, 1, 2]
        assert hosted.cells[RUN].writes == 2
        stored = hosted.cells[RUN].value
        assert stored is not None
        state = decode(stored, source="test")
        assert (state.round, state.complete, state.epoch) == (1, True, 3)


async def test_orders_may_come_from_any_thread_and_views_go_back() -> None:
    async with serving() as hosted:
        threads = [threading.Thread(target=hosted.host.apply, args=(orders(2, max_nodes=n),)) for n in range(2, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        view = await hosted.viewed(lambda view: view.state is RunState.WAITING)
        assert (view.run_id, view.epoch, view.round) == (RUN, 3, 0)
        await form(hosted, 2)
        formed = await hosted.viewed(lambda view: view.state is RunState.FORMED)
        assert [member.index for member in formed.participants] == [0, 1]
        assert ("train", "digits") in hosted.changes


async def test_nothing_is_told_twice_when_nothing_changes() -> None:
    async with serving(None, orders(1)) as hosted:
        await form(hosted, 1)
        await hosted.viewed(lambda view: view.state is RunState.FORMED)
        await asyncio.sleep(0.05)
        told = len(hosted.changes)
        for number in range(5):
            hosted.host.apply(orders(1, join_timeout=600.0 + number))
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))
        await asyncio.sleep(0.1)
        assert len(hosted.changes) == told


async def test_a_pod_that_calls_for_another_run_is_shown_until_it_calls_for_its_own() -> None:
    async with serving(None, orders(1)) as hosted:
        await taken_over(hosted)
        with pytest.raises(ProtocolError, match=f"this pod has no part in run my-run; its own is {RUN}"):
            hosted.host.authorize("my-run", namespace="train", pod_uid="uid-0")
        view = await hosted.viewed(lambda view: bool(view.misdirected))
        assert view.misdirected == {"uid-0": "my-run"}
        await form(hosted, 1)
        await hosted.viewed(lambda view: view.state is RunState.FORMED and not view.misdirected)


async def test_a_pod_of_another_namespace_has_no_part_in_a_run() -> None:
    async with serving(None, orders(1)) as hosted:
        await taken_over(hosted)
        hosted.host.authorize(RUN, namespace="train", pod_uid="uid-9")
        with pytest.raises(ProtocolError) as refused:
            hosted.host.authorize(RUN, namespace="elsewhere", pod_uid="uid-9")
        assert refused.value.code is ErrorCode.FORBIDDEN


async def test_members_and_losses_are_counted() -> None:
    setting = Setting()
    async with serving(setting, orders(2)) as hosted:
        await form(hosted, 2)
        await hosted.viewed(lambda view: view.state is RunState.FORMED)
        assert setting.metrics.registry.get_sample_value("elasticjob_rendezvous_participants") == 2
        hosted.host.apply(replace(orders(2), nodes={"uid-0": node(0)}))
        await hosted.viewed(lambda view: view.state is RunState.REFORMING)
        count = "elasticjob_rendezvous_loss_silence_seconds_count"
        assert setting.metrics.registry.get_sample_value(count, {"detector": "pod watch"}) == 1
        assert setting.metrics.registry.get_sample_value(count, {"detector": "keep-alive"}) == 0


async def test_calls_of_an_earlier_generation_are_counted() -> None:
    setting = Setting()
    async with serving(setting, orders(2)) as hosted:
        await form(hosted, 2)
        calls = [hosted.direct_join(RUN, uid, request(round=1)) for uid in ("uid-0", "uid-1")]
        await asyncio.gather(*calls)
        for round in (1, 2):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=round))
        for uid, incarnation in (("uid-0", "old"), ("uid-9", "a"), ("uid-1", "a"), ("uid-1", "a")):
            leave = LeaveRequest(incarnation=incarnation, round=2, outcome=LeaveOutcome.LEFT)
            hosted.host.leave(RUN, uid, leave)
    lines = setting.metrics.render().decode().splitlines()
    assert 'elasticjob_rendezvous_stale_calls_total{call="heartbeat"} 1.0' in lines
    assert 'elasticjob_rendezvous_stale_calls_total{call="leave"} 2.0' in lines


async def test_a_lost_pod_reaches_survivors_by_orders() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        hosted.host.apply(replace(orders(2), nodes={"uid-0": node(0)}))
        view = await hosted.viewed(lambda view: view.state is RunState.REFORMING)
        assert "pod watch" in view.cause
        assert (await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))).waiting == 1


async def test_deadlines_are_kept_without_any_call() -> None:
    async with serving(None, orders(3, last_call_timeout=0.2, keep_alive_interval=0.2)) as hosted:
        await taken_over(hosted)
        calls = [hosted.direct_join(RUN, f"uid-{index}", request()) for index in range(2)]
        answers = await asyncio.gather(*calls)
        assert {answer.world_size for answer in answers if isinstance(answer, JoinFormed)} == {2}
        view = await hosted.viewed(lambda view: view.round == 1 and view.state is not RunState.FORMED)
        assert "keep-alive" in view.cause


async def test_a_held_call_ends_in_its_own_time() -> None:
    async with serving(None, orders(2, min_nodes=2)) as hosted:
        await taken_over(hosted)
        answer = await hosted.direct_join(RUN, "uid-0", request(wait=0.05))
        assert not isinstance(answer, JoinFormed)
        assert (answer.joined, answer.expected, answer.min_nodes) == (1, 2, 2)


async def test_a_caller_that_hangs_up_is_not_answered_and_keeps_its_place() -> None:
    async with serving(None, orders(2)) as hosted:
        await taken_over(hosted)
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request()))
        await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await hosted.direct_join(RUN, "uid-1", request())
        again = await hosted.direct_join(RUN, "uid-0", request())
        assert isinstance(again, JoinFormed)
        assert again.round == 1


async def test_a_backend_that_is_away_delays_the_round_and_shows_why() -> None:
    async with serving(None, orders(1)) as hosted:
        await taken_over(hosted)
        hosted.cells[RUN].trouble = unreachable()
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request()))
        view = await hosted.viewed(lambda view: view.details)
        assert "connection refused" in view.details["storeError"]
        assert not view.failed
        hosted.cells[RUN].trouble = None
        answer = await call
        assert isinstance(answer, JoinFormed)
        await hosted.viewed(lambda view: not view.details)


async def test_a_backend_that_is_away_at_first_is_asked_again() -> None:
    setting = Setting()
    setting.cells[RUN] = Cell()
    setting.cells[RUN].trouble = unreachable()
    async with serving(setting, orders(1)) as hosted:
        with pytest.raises(ProtocolError) as refused:
            await hosted.direct_join(RUN, "uid-0", request())
        assert refused.value.code is ErrorCode.NOT_READY
        setting.cells[RUN].trouble = None
        await form(hosted, 1)


async def test_a_corrupt_state_fails_the_run_is_named_and_is_never_overwritten() -> None:
    setting = Setting()
    setting.cells[RUN] = Cell()
    setting.cells[RUN].overwrite(b"!!!!")
    async with serving(setting, orders(1)) as hosted:
        view = await hosted.viewed(lambda view: view.failed)
        assert "the memory rendezvous state of job train/digits" in view.failed
        with pytest.raises(ProtocolError) as refused:
            await hosted.direct_join(RUN, "uid-0", request())
        assert refused.value.code is ErrorCode.NOT_READY
        world = World(replicas=1)
        world.view = replace(view, run_id=UID)
        world.settle()
        assert world.condition("Failed")["message"] == view.failed
        assert any(view.failed in event.message for event in world.events)
        hosted.host.apply(orders(1, close=CloseReason.FAILED))
        await asyncio.sleep(0.05)
        assert setting.cells[RUN].value == b"!!!!"


async def test_a_leader_that_was_replaced_falls_silent_and_says_so() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        stored = hosted.cells[RUN].value
        assert stored is not None
        newer = decode(stored, source="test")
        hosted.cells[RUN].overwrite(encode(State(round=newer.round, epoch=4)))
        calls = [hosted.direct_join(RUN, uid, request(round=1)) for uid in ("uid-0", "uid-1")]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ProtocolError)
            assert outcome.code is ErrorCode.NOT_READY
        assert "epoch 4" in hosted.lost[0]
        assert hosted.host.view(RUN) is None
        with pytest.raises(ProtocolError):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))


async def test_a_caller_that_knows_a_newer_round_makes_an_old_leader_look() -> None:
    async with serving(None, orders(1)) as hosted:
        await form(hosted, 1)
        hosted.cells[RUN].overwrite(encode(State(round=9, epoch=8)))
        with pytest.raises(ProtocolError):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=9))
        await asyncio.wait_for(hosted.has_lost.wait(), 5)


async def test_an_older_leader_cannot_take_over() -> None:
    setting = Setting(epoch=3)
    setting.cells[RUN] = Cell()
    setting.cells[RUN].overwrite(encode(State(round=2, epoch=5)))
    async with serving(setting, orders(1)) as hosted:
        await asyncio.wait_for(hosted.has_lost.wait(), 5)
        assert setting.cells[RUN].writes == 0


OTHER = "8f14e45f-0000-4000-8000-000000000002"


@contextlib.asynccontextmanager
async def beside_another(setting: Setting) -> AsyncIterator[Hosted]:
    """A run with a member in a round, and another run that must go on whatever becomes of the first."""
    setting.holds_lease = True
    other = replace(orders(1), run_id=OTHER, job="other", nodes={"uid-9": node(0, uid="uid-9")})
    async with serving(setting, orders(1), other) as hosted:
        await form(hosted, 1)
        yield hosted
        assert isinstance(await hosted.direct_join(OTHER, "uid-9", request()), JoinFormed)
        assert not hosted.lost


async def test_an_epoch_that_was_never_given_out_costs_one_run_and_no_leadership() -> None:
    async with beside_another(Setting()) as hosted:
        foreign = encode(State(round=1, epoch=2**31))
        hosted.cells[RUN].overwrite(foreign)
        refused = await asyncio.gather(hosted.direct_join(RUN, "uid-0", request(round=1)), return_exceptions=True)
        assert isinstance(refused[0], ProtocolError)
        assert refused[0].code is ErrorCode.NOT_READY
        failed = (await hosted.viewed(lambda view: view.failed)).failed
        assert "job train/digits belongs to epoch 2147483648, which was never given out" in failed
        assert hosted.cells[RUN].value == foreign


async def test_a_foreign_epoch_that_is_there_at_the_start_costs_one_run_and_is_named() -> None:
    setting = Setting(cells={RUN: Cell()}, holds_lease=True)
    setting.cells[RUN].overwrite(encode(State(round=1, epoch=4)))
    async with serving(setting, orders(1)) as hosted:
        view = await hosted.viewed(lambda view: view.failed)
        assert not view.taken_over
        assert "which was never given out" in view.failed
        assert not hosted.lost
        assert setting.cells[RUN].writes == 0


async def test_a_foreign_epoch_that_a_caller_made_us_look_at_costs_one_run() -> None:
    async with beside_another(Setting()) as hosted:
        hosted.cells[RUN].overwrite(encode(State(round=9, epoch=8)))
        with pytest.raises(ProtocolError):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=9))
        assert "which was never given out" in (await hosted.viewed(lambda view: view.failed)).failed
        heard = await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))
        assert not heard.evicted


async def test_a_state_that_was_changed_under_our_own_epoch_costs_one_run() -> None:
    async with beside_another(Setting()) as hosted:
        changed = encode(State(round=7, epoch=3))
        hosted.cells[RUN].overwrite(changed)
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request(round=1, wait=0.2)))
        assert "changed by somebody who does not lead" in (await hosted.viewed(lambda view: view.failed)).failed
        await asyncio.gather(call, return_exceptions=True)
        assert hosted.cells[RUN].value == changed


async def test_a_state_that_is_repaired_is_served_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "CORRUPT_PAUSE", 0.01)
    async with beside_another(Setting()) as hosted:
        before = hosted.cells[RUN].value
        assert before is not None
        hosted.cells[RUN].overwrite(encode(State(round=1, epoch=2**31)))
        await asyncio.gather(hosted.direct_join(RUN, "uid-0", request(round=1)), return_exceptions=True)
        await hosted.viewed(lambda view: view.failed)
        hosted.cells[RUN].overwrite(before)
        assert (await hosted.viewed(lambda view: not view.failed and view.round > 1)).round == 2


async def test_nothing_is_answered_until_the_lease_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "LEASE_PAUSE", 0.01)
    setting = Setting(holds_lease=ConnectionError("no API server"))
    async with serving(setting, orders(1)) as hosted:
        await form(hosted, 1)
        hosted.cells[RUN].overwrite(encode(State(round=1, epoch=4)))
        await asyncio.gather(hosted.direct_join(RUN, "uid-0", request(round=1)), return_exceptions=True)
        with pytest.raises(ProtocolError, match="another operator leads"):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))
        assert not hosted.lost
        setting.holds_lease = False
        await asyncio.wait_for(hosted.has_lost.wait(), 5)


async def test_the_next_leader_goes_on_where_the_last_one_was() -> None:
    setting = Setting()
    async with serving(setting, orders(2)) as hosted:
        await form(hosted, 2)
    setting.epoch = 4
    async with serving(setting, orders(2)) as hosted:
        await taken_over(hosted)
        assert (await hosted.viewed(lambda view: view.round == 1)).held
        for uid in ("uid-0", "uid-1"):
            assert not (await hosted.direct_heartbeat(RUN, uid, HeartbeatRequest(incarnation="a", round=1))).evicted
        assert not (await hosted.viewed(lambda view: not view.held)).held


async def test_without_leadership_nothing_is_read_or_written() -> None:
    setting = Setting()
    async with serving(setting, orders(1)) as hosted:
        await taken_over(hosted)
        hosted.host._states._require_leadership = _refuse
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request(wait=0.2)))
        assert not isinstance(await call, JoinFormed)
        assert setting.cells[RUN].writes == 1


def _refuse() -> None:
    raise PermissionError("this process does not lead")


async def test_a_forgotten_run_is_unknown_and_its_callers_are_told() -> None:
    async with serving(None, orders(2)) as hosted:
        await taken_over(hosted)
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request()))
        await asyncio.sleep(0.02)
        hosted.host.forget(RUN)
        with pytest.raises(ProtocolError) as refused:
            await call
        assert refused.value.code is ErrorCode.UNKNOWN_RUN
        assert hosted.host.view(RUN) is None


async def test_what_is_left_of_a_job_that_is_gone_is_refused_for_good() -> None:
    async with serving(None, orders(2)) as hosted:
        await taken_over(hosted)
        call = asyncio.create_task(hosted.join("uid-0", wait=30))
        await hosted.viewed(lambda view: view.waiting)
        hosted.host.erase(orders(2))
        anew = {"uid-new": node(0, uid="uid-new")}
        hosted.host.apply(replace(orders(1), run_id="anew", nodes=anew))
        status, body = await call
        assert (status, body["closed"]["reason"]) == (410, "Deleted")
        status, body = await hosted.join("uid-0")
        assert (status, body["closed"]["reason"]) == (410, "Deleted")
        status, body = await hosted.call("POST", "/v1/runs/anew/join", join_body(), uid="uid-0")
        assert (status, body["error"]["code"]) == (403, "forbidden")


def test_the_runs_of_jobs_that_are_gone_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erased, "MAX_RUNS", 2)
    monkeypatch.setattr(erased, "MAX_PODS", 1)
    gone = erased.Erased()
    for name in ("a", "b", "c"):
        gone.add(replace(orders(1), run_id=name, nodes={f"uid-{name}": node(0, uid=f"uid-{name}")}))
    codes = [gone.refusal(name).code for name in ("a", "b", "c")]
    assert codes == [ErrorCode.UNKNOWN_RUN, ErrorCode.CLOSED, ErrorCode.CLOSED]
    assert (gone.run_of("uid-b"), gone.run_of("uid-c")) == (None, "c")


async def test_closing_answers_whoever_waits() -> None:
    async with serving(None, orders(2)) as hosted:
        await taken_over(hosted)
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request()))
        await asyncio.sleep(0.02)
        hosted.host.apply(orders(2, close=CloseReason.SUCCEEDED))
        with pytest.raises(ProtocolError) as refused:
            await call
        assert refused.value.code is ErrorCode.CLOSED
        assert (await hosted.viewed(lambda view: view.state is RunState.CLOSED)).round == 0


async def test_held_calls_are_bounded() -> None:
    async with serving(Setting(limits=HostLimits(held_calls=1)), orders(3, min_nodes=3)) as hosted:
        await taken_over(hosted)
        call = asyncio.create_task(hosted.direct_join(RUN, "uid-0", request()))
        await asyncio.sleep(0.02)
        status, body = await hosted.join("uid-1")
        assert (status, body["error"]["code"]) == (429, "overloaded")
        assert hosted.host.refusals["overloaded"] == 1
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_heartbeat_that_cannot_be_held_is_answered_at_once() -> None:
    async with serving(Setting(limits=HostLimits(held_calls=2)), orders(2)) as hosted:
        await form(hosted, 2)
        hosted.host.endpoint(RUN, "uid-1", 1, wait=20, answered=print)
        waits = HeartbeatRequest(incarnation="a", round=1, wait=4.0)
        calls = [hosted.host.heartbeat(RUN, uid, waits, answered=print) for uid in ("uid-1", "uid-0")]
        assert [isinstance(call, HeartbeatAnswer) for call in calls] == [False, True]


async def test_one_pod_cannot_take_all_calls_that_may_be_held() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        hang_ups = [hosted.host.endpoint(RUN, "uid-1", 1, wait=20, answered=print) for _ in range(4)]
        with pytest.raises(ProtocolError, match="4 of them of this pod") as refused:
            hosted.host.endpoint(RUN, "uid-1", 1, wait=20, answered=print)
        assert refused.value.code is ErrorCode.OVERLOADED
        hang_ups += [hosted.host.endpoint(RUN, "uid-0", 1, wait=20, answered=print)]
        hang_ups[0]()
        hosted.host.endpoint(RUN, "uid-1", 1, wait=20, answered=print)


async def test_membership_is_recorded_and_heartbeats_are_not() -> None:
    async with serving(None, orders(2)) as hosted:
        await form(hosted, 2)
        for _ in range(20):
            await hosted.direct_heartbeat(RUN, "uid-0", HeartbeatRequest(incarnation="a", round=1))
    names = [event["name"] for event in hosted.events]
    assert names.count("NodeJoined") == 2
    assert names.count("NodeRanked") == 2
    assert names.count("RoundFormed") == 1
    assert all(event["run_id"] == RUN for event in hosted.events)
    joined = next(event for event in hosted.events if event["name"] == "NodeJoined")
    assert (joined["hostname"], joined["local_id"], joined["pid"]) == ("digits-0-0", 0, 1)


async def test_a_thousand_nodes_form_one_round() -> None:
    async with serving(None, orders(1000)) as hosted:
        answers = await form(hosted, 1000)
        assert sorted(answer.rank for answer in answers) == list(range(1000))
        assert hosted.cells[RUN].writes == 2
