"""A thread that repeats a call and outlives its exceptions."""

import threading
import time

from elasticjob.rendezvous.keep_alive import KeepAlive


def test_the_call_is_repeated_whatever_it_raises() -> None:
    errors = iter([ValueError("odd"), ConnectionRefusedError(), LookupError(), RuntimeError("closed")])
    done = threading.Event()

    def beat() -> None:
        try:
            error = next(errors)
        except StopIteration:
            done.set()
            return
        raise error

    keep_alive = KeepAlive(beat, interval=0.005, name="test")
    assert done.wait(5)
    assert keep_alive.alive
    keep_alive.stop()


def test_stopping_ends_the_thread_and_does_not_wait_for_a_call_that_hangs() -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def beat() -> None:
        hangs.set()
        let_go.wait(10)

    keep_alive = KeepAlive(beat, interval=0.001, name="test")
    assert hangs.wait(5)
    started = time.monotonic()
    keep_alive.stop()
    assert time.monotonic() - started < 1
    let_go.set()
    keep_alive._thread.join(5)
    assert not keep_alive.alive


def test_stopping_can_wait_for_the_call_that_is_under_way() -> None:
    begun, ended = threading.Event(), threading.Event()

    def beat() -> None:
        begun.set()
        time.sleep(0.05)
        ended.set()

    keep_alive = KeepAlive(beat, interval=0.001, name="test")
    assert begun.wait(5)
    keep_alive.stop(wait=5)
    assert ended.is_set()
    assert not keep_alive.alive


def test_nothing_is_called_before_one_interval_is_over() -> None:
    calls: list[int] = []
    keep_alive = KeepAlive(lambda: calls.append(1), interval=60, name="test")
    keep_alive.stop()
    keep_alive._thread.join(5)
    assert calls == []
