import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.work_queue import Agenda, Backoff, QueueClosed, WorkQueue
from tests.unit.operator.fakes import FakeClock


def agenda(limit: int = 100) -> Agenda[str]:
    return Agenda(limit=limit)


def test_equal_keys_are_worked_on_once() -> None:
    queue = agenda()
    for _ in range(3):
        queue.add("a", at=0, now=0)
    assert queue.take(0) == "a"
    assert queue.take(0) is None


def test_keys_are_handed_out_in_the_order_in_which_they_became_ready() -> None:
    queue = agenda()
    queue.add("late", at=2, now=0)
    queue.add("soon", at=1, now=0)
    queue.add("now", at=0, now=0)
    assert [queue.take(5) for _ in range(3)] == ["now", "soon", "late"]


def test_a_key_that_is_worked_on_is_not_handed_out_again() -> None:
    queue = agenda()
    queue.add("a", at=0, now=0)
    assert queue.take(0) == "a"
    queue.add("a", at=0, now=0)
    assert queue.take(0) is None
    queue.finish("a", now=0)
    assert queue.take(0) == "a"


def test_the_earliest_request_wins() -> None:
    queue = agenda()
    queue.add("a", at=10, now=0)
    queue.add("a", at=20, now=0)
    queue.add("a", at=5, now=0)
    assert queue.next_due() == 5
    assert queue.take(4.9) is None
    assert queue.take(5) == "a"
    queue.finish("a", now=5)
    assert queue.take(30) is None


def test_of_requests_during_the_work_the_earliest_wins_too() -> None:
    queue = agenda()
    queue.add("a", at=0, now=0)
    queue.take(0)
    queue.add("a", at=30, now=0)
    queue.add("a", at=10, now=0)
    queue.finish("a", now=1)
    assert queue.next_due() == 10


def test_a_request_in_the_past_is_ready_at_once() -> None:
    queue = agenda()
    queue.add("a", at=-5, now=0)
    assert queue.ready == 1


def test_a_full_queue_refuses_new_keys_and_keeps_known_ones() -> None:
    queue = agenda(limit=1)
    assert queue.add("a", at=5, now=0)
    assert not queue.add("b", at=0, now=0)
    assert queue.add("a", at=0, now=0)
    assert queue.take(0) == "a"
    assert not queue.add("b", at=0, now=0)
    queue.finish("a", now=0)
    assert queue.add("b", at=0, now=0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(0, 5)),
            st.tuples(st.just("take"), st.just(""), st.just(0)),
            st.tuples(st.just("finish"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("wait"), st.just(""), st.integers(0, 5)),
        ),
        max_size=40,
    )
)
def test_no_request_is_lost_and_no_key_is_busy_twice(steps: list[tuple[str, str, int]]) -> None:
    queue, now = agenda(), 0.0
    busy: set[str] = set()
    owed: set[str] = set()
    for verb, key, number in steps:
        if verb == "add":
            queue.add(key, at=now + number, now=now)
            owed.add(key)
        elif verb == "take" and (taken := queue.take(now)):
            assert taken not in busy
            busy.add(taken)
            owed.discard(taken)
        elif verb == "finish" and key in busy:
            busy.discard(key)
            queue.finish(key, now=now)
        elif verb == "wait":
            now += number
    for key in busy:
        queue.finish(key, now=now)
    handed: set[str] = set()
    while (taken := queue.take(now + 100)) is not None:
        handed.add(taken)
    assert handed == owed


def test_pauses_double_up_to_their_limit_and_are_spread_by_jitter() -> None:
    lowest = Backoff(base=1, limit=10, uniform=lambda low, high: low)
    highest = Backoff(base=1, limit=10, uniform=lambda low, high: high)
    assert [highest.pause(n) for n in (1, 2, 3, 4, 5, 1000)] == [1, 2, 4, 8, 10, 10]
    assert lowest.pause(1) == 0.1


def work_queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, backoff=Backoff(base=1, limit=8, uniform=lambda low, high: high))


async def test_a_worker_that_waits_gets_a_key_when_it_comes() -> None:
    queue = work_queue(FakeClock())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiting == "a"


async def test_two_workers_get_two_keys() -> None:
    queue = work_queue(FakeClock())
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*workers)) == ["a", "b"]


async def test_failures_grow_the_pause_until_they_are_forgotten() -> None:
    queue = work_queue(FakeClock())
    assert [queue.retry("a"), queue.retry("a"), queue.retry("a")] == [1, 2, 4]
    queue.forget("a")
    assert queue.retry("a") == 1


async def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    assert work_queue(FakeClock()).retry("a", at_least=30) == 30


async def test_closing_ends_workers_and_refuses_keys() -> None:
    queue = work_queue(FakeClock())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(QueueClosed):
        await waiting
    assert not queue.add("a")
    assert len(queue) == 0
