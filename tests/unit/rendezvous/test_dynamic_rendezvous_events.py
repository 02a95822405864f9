"""What happens to a node is told in events, and no sink of events can harm it."""

import logging
import threading
import time
from collections.abc import Callable

import pytest

from elasticjob.events import register_logging_handler
from elasticjob.rendezvous.api import RendezvousParameters
from elasticjob.rendezvous.backends.memory import MemorySpace
from elasticjob.rendezvous.dynamic_rendezvous import create_handler
from elasticjob.rendezvous.errors import (
    RendezvousConnectionError,
)
from elasticjob.rendezvous.store import InMemoryStore
from tests.unit.rendezvous.peer_run import (
    INTERVAL,
    PATIENCE,
    Backend,
    Run,
    Sink,
    eventually,
    leave,
    raises,
    raising,
    ranks,
)

# Events.


def test_the_life_of_a_node_is_told_in_events(run: Run, sink: Sink) -> None:
    handler = run.handler(interval=INTERVAL)
    handler.next_rendezvous()
    eventually(lambda: bool(sink.named("keep_alive")))
    run.join(run.handler())
    eventually(lambda: bool(sink.named("add_to_redundancy_list")))
    leave(handler)
    run.handler().set_closed()
    entered, joined = sink.named("next_rendezvous")[:2]
    assert entered["message"].endswith("attempts to join the next round of the rendezvous 'run'.")
    assert joined["rank"] == 0
    assert joined["node_state"] == "RUNNING"
    assert joined["hostname"] == "10.0.0.0"
    assert sink.named("add_to_participants")
    assert sink.named("mark_rendezvous_complete")[0]["node_state"] == "SUCCEEDED"
    assert sink.named("remove_from_participants")
    assert sink.named("mark_rendezvous_closed")
    assert sink.named("close")[0]["node_state"] == "SUCCEEDED"


def test_failures_are_told_in_events_with_their_trace(run: Run, sink: Sink) -> None:
    handler = run.handler(join=0.01)
    run.backends[0].fault = raising(OSError("no route"))
    calls: list[Callable[[], object]] = [
        handler.next_rendezvous,
        handler.is_closed,
        handler.set_closed,
        handler.num_nodes_waiting,
    ]
    for call in calls:
        assert raises(RendezvousConnectionError, call)
    handler.shutdown()
    for name in ("is_closed", "set_closed", "num_nodes_waiting", "shutdown"):
        assert sink.named(name)[0]["node_state"] == "FAILED", name
    failed = sink.named("next_rendezvous")[1]
    assert failed["node_state"] == "FAILED"
    assert "no route" in failed["error_trace"]


def test_a_handler_that_cannot_be_made_is_told_in_an_event(sink: Sink) -> None:
    with pytest.raises(ValueError, match="join"):
        create_handler(
            InMemoryStore(),
            Backend(MemorySpace("run")),
            RendezvousParameters("memory", "", "run", 1, 1, join_timeout=0),
        )
    assert sink.events[0]["node_state"] == "FAILED"
    assert sink.events[0]["name"] == "dynamic_rendezvous.py:create_handler"


class BadSink(logging.Handler):
    def __init__(self, emit: Callable[[], object]) -> None:
        super().__init__()
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        self._emit()


@pytest.mark.parametrize("kind", ["raises", "blocks"])
def test_a_bad_sink_of_events_harms_no_call(run: Run, kind: str) -> None:
    released = threading.Event()
    emit = raising(OSError("disk is full")) if kind == "raises" else lambda: released.wait(PATIENCE)
    before = register_logging_handler("dynamic_rendezvous", BadSink(emit))
    try:
        handlers = [run.handler(2, 2) for _ in range(2)]
        begin = time.monotonic()
        assert ranks(run.join(*handlers)) == [(0, 2), (1, 2)]
        beats = sum(run.state.beats.values())
        eventually(lambda: sum(run.state.beats.values()) > beats + 2)
        handlers[0].set_closed()
        assert handlers[1].is_closed()
        assert handlers[0].shutdown()
        assert time.monotonic() - begin < PATIENCE / 2
    finally:
        released.set()
        register_logging_handler("dynamic_rendezvous", before)
