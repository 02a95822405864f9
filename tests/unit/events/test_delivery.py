"""The way of an event to its sink."""

import threading
import time

import pytest

from elasticjob.events.delivery import Carrier


def test_a_good_sink_has_written_when_the_caller_goes_on() -> None:
    carrier, lines = Carrier("x", patience=30), list[str]()
    for number in range(100):
        carrier.carry(lines.append, str(number))
        assert lines[-1] == str(number)


def test_what_does_not_fit_is_dropped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()
    carrier, lines = Carrier("x", patience=0.01, capacity=2), list[str]()

    def write(text: str) -> None:
        released.wait()
        lines.append(text)

    for number in range(10):
        carrier.carry(write, str(number))
    released.set()
    carrier.flush(time.monotonic() + 30)
    assert lines == ["0", "1", "2"]
    assert "Dropped 4 event(s) for 'x'" in caplog.text


def test_a_sink_that_has_caught_up_is_waited_for_again() -> None:
    released = threading.Event()
    carrier, lines = Carrier("x", patience=0.01), list[str]()
    carrier.carry(lambda _: released.wait(), "slow")
    assert not carrier.is_idle()
    released.set()
    carrier.flush(time.monotonic() + 30)
    carrier.carry(lines.append, "catches up")
    carrier.flush(time.monotonic() + 30)
    assert carrier.is_idle()
    assert lines == ["catches up"]


def test_a_flush_ends_at_its_deadline() -> None:
    carrier, released = Carrier("x", patience=0.01, capacity=1), threading.Event()
    for _ in range(3):
        carrier.carry(lambda _: released.wait(), "slow")
    carrier.flush(time.monotonic() + 0.01)
    released.set()


def test_without_a_thread_the_sink_is_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    lines = list[str]()
    Carrier("x").carry(lines.append, "direct")
    assert lines == ["direct"]
