"""The name of the host is found in a moment or not at all."""

import socket
import threading
import time

import pytest

from elasticjob.events.hostname import HostName


def test_the_name_is_looked_up_once() -> None:
    calls: list[None] = []

    def lookup() -> str:
        calls.append(None)
        return "node-1.example.org"

    name = HostName(lookup=lookup, environ={}, patience=30)
    assert [name.get() for _ in range(100)] == ["node-1.example.org"] * 100
    assert len(calls) == 1


def test_a_resolver_that_hangs_is_waited_for_once_and_briefly() -> None:
    released = threading.Event()
    calls: list[None] = []

    def lookup() -> str:
        calls.append(None)
        released.wait()
        return "late.example.org"

    name = HostName(lookup=lookup, environ={"HOSTNAME": "demo-worker-0"}, patience=0.01)
    begin = time.monotonic()
    assert [name.get() for _ in range(100)] == ["demo-worker-0"] * 100
    assert time.monotonic() - begin < 5
    assert len(calls) == 1
    released.set()


@pytest.mark.parametrize(
    "answer", ["1.0.0.0.ip6.arpa", "1.0.0.10.in-addr.arpa.", "localhost", "localhost.localdomain", ""]
)
def test_a_name_that_says_nothing_is_not_taken(answer: str) -> None:
    assert HostName(lookup=lambda: answer, environ={"HOSTNAME": "demo-1"}, patience=30).get() == "demo-1"


def test_a_resolver_that_fails_does_no_harm() -> None:
    def lookup() -> str:
        raise OSError("no resolver")

    assert HostName(lookup=lookup, environ={}, patience=30).get() == socket.gethostname()


@pytest.mark.parametrize("variable", ["ELASTICJOB_POD_NAME", "POD_NAME"])
def test_within_a_pod_nothing_is_looked_up(variable: str) -> None:
    def lookup() -> str:
        raise AssertionError("was called")

    assert HostName(lookup=lookup, environ={variable: "demo-0-1"}).get() == "demo-0-1"


def test_without_a_thread_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert HostName(environ={"HOSTNAME": "demo-2"}).get() == "demo-2"
