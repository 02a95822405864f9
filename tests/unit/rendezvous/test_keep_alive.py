"""A thread that gives a sign of life again and again, whatever happens."""

import gc
import threading
import time

import pytest

from elasticjob.rendezvous.keep_alive import KeepAlive


def test_the_call_is_repeated_whatever_it_raises() -> None:
    errors = iter([ValueError("odd"), ConnectionRefusedError(), LookupError(), RuntimeError("closed"), SystemExit()])
    done = threading.Event()

    def beat() -> float:
        for error in errors:
            raise error
        done.set()
        return 60

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(0.005)
    assert done.wait(5)
    assert keep_alive.alive
    keep_alive.stop()


def test_each_call_says_when_the_next_one_is_due() -> None:
    pauses = iter([0.001, 0.002, 60.0])
    done = threading.Event()

    def beat() -> float:
        pause = next(pauses)
        if pause == 60.0:
            done.set()
        return pause

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(0.001)
    assert done.wait(5)
    keep_alive.stop()
    assert next(pauses, None) is None


@pytest.mark.parametrize("pause", [1e11, float("inf")])
def test_a_pause_longer_than_a_clock_can_count_does_not_end_the_thread(pause: float) -> None:
    called = threading.Event()

    def beat() -> float:
        called.set()
        return pause

    for first in (0.001, pause):
        keep_alive = KeepAlive(beat, name="test")
        keep_alive.start(first)
        assert called.wait(5)
        assert keep_alive._thread is not None
        keep_alive._thread.join(0.1)
        assert keep_alive.alive
        keep_alive.stop()


def test_stopping_ends_the_thread_and_does_not_wait_for_a_call_that_hangs() -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def beat() -> float:
        hangs.set()
        let_go.wait(10)
        return 0.001

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(0.001)
    assert hangs.wait(5)
    thread = keep_alive._thread
    assert thread is not None
    started = time.monotonic()
    keep_alive.stop()
    assert time.monotonic() - started < 5
    let_go.set()
    thread.join(5)
    assert not thread.is_alive()


def test_stopping_can_wait_for_the_call_that_is_under_way() -> None:
    begun, ended = threading.Event(), threading.Event()

    def beat() -> float:
        begun.set()
        time.sleep(0.05)
        ended.set()
        return 0.001

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(0.001)
    assert begun.wait(5)
    keep_alive.stop(wait=5)
    assert ended.is_set()
    assert not keep_alive.alive


def test_one_that_was_stopped_can_start_again() -> None:
    begun = threading.Event()

    def beat() -> float:
        begun.set()
        return 60

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(60)
    keep_alive.stop(wait=5)
    keep_alive.start(0.001)
    assert begun.wait(5)
    keep_alive.stop()


def test_nothing_is_called_before_the_first_pause_is_over() -> None:
    calls: list[int] = []

    def beat() -> float:
        calls.append(1)
        return 60

    keep_alive = KeepAlive(beat, name="test")
    keep_alive.start(60)
    keep_alive.stop(wait=5)
    assert calls == []


def test_the_thread_ends_when_nobody_refers_to_it_any_more() -> None:
    keep_alive = KeepAlive(lambda: 60, name="test")
    keep_alive.start(60)
    thread = keep_alive._thread
    assert thread is not None
    del keep_alive
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_an_object_whose_method_is_called_is_not_kept_alive() -> None:
    class Node:
        def beat(self) -> float:
            return 0.001

    node = Node()
    keep_alive = KeepAlive(node.beat, name="test")
    keep_alive.start(0.001)
    thread = keep_alive._thread
    assert thread is not None
    del node
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()
