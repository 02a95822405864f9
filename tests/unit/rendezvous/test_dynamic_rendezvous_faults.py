"""Whatever goes wrong with the backend, a caller gets an answer or a typed error, in time."""

import json
import logging
import sys
import threading
import time
import types
from typing import Any

import pytest

from elasticjob.rendezvous.backend import Token
from elasticjob.rendezvous.backends.kubernetes_objects import ThrottledError
from elasticjob.rendezvous.backends.memory import MemoryRendezvousBackend
from elasticjob.rendezvous.errors import (
    RendezvousConnectionError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from elasticjob.rendezvous.store import InMemoryStore
from tests.unit.rendezvous.peer_run import PATIENCE, Backend, Run, eventually, leave, raises, raising, ranks

# pytorch#194870, pytorch#62029: a heartbeat meets any exception.


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        TimeoutError("read timed out"),
        RendezvousConnectionError("503 Service Unavailable"),
        RendezvousStateError("403 Forbidden"),
        KeyError("TTL"),
        json.JSONDecodeError("odd", "", 0),
        MemoryError(),
        SystemExit(1),
    ],
)
def test_the_heartbeats_survive_any_exception(run: Run, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    handler = run.handler()
    handler.next_rendezvous()
    [key] = run.state.participants
    calls: list[None] = []

    def fault() -> None:
        calls.append(None)
        raise error

    run.backends[0].fault = fault
    eventually(lambda: len(calls) >= 3)
    run.backends[0].fault = None
    before = run.state.beats.get(key, 0)
    eventually(lambda: run.state.beats.get(key, 0) > before + 1)
    assert handler.num_nodes_waiting() == 0
    warnings = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    if not isinstance(error, SystemExit):
        assert len(warnings) == 1, "one warning for an outage"


def test_during_an_outage_training_goes_on(run: Run) -> None:
    handler = run.handler()
    handler.next_rendezvous()
    run.backends[0].fault = raising(RendezvousConnectionError("down"))
    assert {handler.num_nodes_waiting() for _ in range(20)} == {0}
    with pytest.raises(RendezvousConnectionError, match="down"):
        handler.is_closed()


def test_who_has_never_reached_the_backend_is_told(run: Run) -> None:
    handler = run.handler()
    run.backends[0].fault = raising(OSError("no route to host"))
    for call in (handler.num_nodes_waiting, handler.is_closed, handler.set_closed):
        with pytest.raises(RendezvousConnectionError, match="no route to host"):
            call()
    assert handler.shutdown() is False


# pytorch#73682, pytorch#107021: a backend that comes late, or never, or hangs.


def test_a_backend_that_comes_late_is_waited_for(run: Run) -> None:
    handler = run.handler()
    calls: list[None] = []

    def fault() -> None:
        calls.append(None)
        if len(calls) < 4:
            raise RendezvousConnectionError("Name or service not known")

    run.backends[0].fault = fault
    assert ranks(run.join(handler)) == [(0, 1)]


def test_a_backend_that_asks_to_be_left_alone_is_left_alone(run: Run) -> None:
    handler = run.handler()
    calls: list[float] = []

    def fault() -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise ThrottledError("429", retry_after=0.5)

    run.backends[0].fault = fault
    handler.next_rendezvous()
    assert calls[1] - calls[0] >= 0.5


def test_a_backend_that_never_comes_is_told_within_the_join_time_out(run: Run) -> None:
    handler = run.handler(join=0.3)
    run.backends[0].fault = raising(RendezvousConnectionError("etcd.example:2379: Name or service not known"))
    with pytest.raises(RendezvousConnectionError, match=r"etcd\.example:2379: Name or service not known"):
        handler.next_rendezvous()


def test_shutdown_never_waits_for_a_heartbeat_that_hangs(run: Run) -> None:
    handler = run.handler(close=0.3)
    handler.next_rendezvous()
    hanging, released = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        released.wait(PATIENCE)

    run.backends[0].fault = hang
    assert hanging.wait(PATIENCE)
    begin = time.monotonic()
    assert handler.shutdown() is False
    assert time.monotonic() - begin < 0.3 + 1
    assert handler.num_nodes_waiting() == 0
    released.set()


def test_set_closed_ends_within_the_close_time_out_when_others_are_always_quicker(run: Run) -> None:
    handler, other = run.handler(close=0.3), run.handler()
    other.next_rendezvous()
    run.backends[0].loses = True
    with pytest.raises(RendezvousTimeoutError, match="close"):
        handler.set_closed()
    assert leave(handler) is True, "a node that is in no round has nothing to write"


# The stored state is damaged or hostile.


@pytest.mark.parametrize(
    "damage",
    [
        b"!!!!",
        b"abc",
        b'{"version":1,"round":0,"comp',
        b"[]",
        b'{"version":2}',
        b"\xff\xfe",
        b"x" * 900_000,
        b"cos\nsystem\n(S'exit 1'\ntR.",
        b"",
    ],
)
def test_a_damaged_state_is_told_by_every_call_and_never_overwritten(run: Run, damage: bytes) -> None:
    handler = run.handler()
    handler.next_rendezvous()
    run.space.state = damage
    run.space.version += 1
    for call in (handler.next_rendezvous, handler.is_closed, handler.set_closed):
        with pytest.raises(RendezvousStateError, match="run 'run'"):
            call()
    eventually(lambda: raises(RendezvousStateError, handler.num_nodes_waiting))
    assert handler.shutdown() is False
    assert run.space.state == damage


# A backend of somebody else.


def test_a_backend_that_does_not_say_what_it_wrote_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = run.handler()
    write = MemoryRendezvousBackend.set_state

    def set_state(self: Backend, state: bytes, token: Token | None = None) -> None:
        write(self, state, token)

    monkeypatch.setattr(Backend, "set_state", set_state)
    assert ranks(run.join(handler)) == [(0, 1)]


def test_a_store_that_only_knows_set_and_get_will_do(run: Run) -> None:
    class Plain:
        def __init__(self) -> None:
            self.values: dict[str, bytes] = {}

        def set(self, key: str, value: bytes) -> None:
            self.values[key] = value

        def get(self, key: str) -> bytes:
            return self.values[key]

    plain: Any = Plain()
    info = run.handler(store=plain).next_rendezvous()
    assert set(plain.values) == {"torch.rendezvous.run.0/MASTER_ADDR", "torch.rendezvous.run.0/MASTER_PORT"}
    assert info.store.underlying_store is plain  # type: ignore[attr-defined]
    assert info.store.values is plain.values  # type: ignore[attr-defined]


def test_a_store_of_torch_gets_a_view_of_torch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class TorchStore(InMemoryStore):
        pass

    class Foreign:
        def __init__(self) -> None:
            self.inner = TorchStore()

    class PrefixStore:
        def __init__(self, prefix: str, store: Foreign) -> None:
            self.prefix = prefix
            self.set, self.get, self.check = store.inner.set, store.inner.get, store.inner.check

    c10d: Any = types.ModuleType("torch.distributed")
    c10d.Store, c10d.PrefixStore = Foreign, PrefixStore
    monkeypatch.setitem(sys.modules, "torch.distributed", c10d)
    foreign: Any = Foreign()
    info = run.handler(store=foreign).next_rendezvous()
    assert isinstance(info.store, PrefixStore)
    assert info.store.prefix == "torch.rendezvous.run.0"
