"""Recording: it reaches the sink, costs nothing without one, and never harms whoever records."""

import inspect
import io
import json
import logging
import os
import socket
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticjob import events
from elasticjob.events import (
    Event,
    EventSource,
    NodeState,
    RdzvEvent,
    construct_and_record_rdzv_event,
    get_logging_handler,
    record,
    record_rdzv_event,
    register_logging_handler,
)
from elasticjob.events.delivery import carriers
from tests.unit.events.conftest import Sink

Register = Callable[[str, logging.Handler], None]


def _event(name: str = "e") -> Event:
    return Event(name, EventSource.AGENT)


def _rdzv_event(message: str = "m") -> RdzvEvent:
    return RdzvEvent("n", "run", message, "host", 1, NodeState.RUNNING)


def test_the_public_names_are_those_of_torch() -> None:
    from elasticjob.events import api, handlers

    assert str(inspect.signature(record)) == ("(event: elasticjob.events.api.Event, destination: str = 'null') -> None")
    assert str(inspect.signature(construct_and_record_rdzv_event)) == (
        "(run_id: str, message: str, node_state: elasticjob.events.api.NodeState, name: str = '', "
        "hostname: str = '', pid: int | None = None, master_endpoint: str = '', local_id: int | None = None, "
        "rank: int | None = None) -> None"
    )
    assert str(inspect.signature(get_logging_handler)) == "(destination: str = 'null') -> logging.Handler"
    assert api.Event is events.Event
    assert handlers.get_logging_handler is events.get_logging_handler


def test_an_event_is_one_line_of_json_at_its_destination(register: Register) -> None:
    sink = Sink()
    register("files", sink)
    record(_event(), destination="files")
    assert sink.lines == [_event().serialize()]


def test_the_console_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    record(_event(), destination="console")
    assert capsys.readouterr().err == f"{_event().serialize()}\n"


def test_a_handler_takes_an_event_directly_as_documented(capsys: pytest.CaptureFixture[str]) -> None:
    get_logging_handler(destination="console").info(_event())  # type: ignore[attr-defined]
    get_logging_handler().info(_event())  # type: ignore[attr-defined]
    assert capsys.readouterr().err == f"{_event().serialize()}\n"


def test_the_stream_of_the_console_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    handler, stream = get_logging_handler("console"), io.StringIO()
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    try:
        record(_event(), "console")
    finally:
        handler._stream = None  # type: ignore[attr-defined]
    assert stream.getvalue() == f"{_event().serialize()}\n"
    assert capsys.readouterr().err == ""


def test_nothing_reaches_the_root_logger(sink: Sink) -> None:
    # Not caplog: pytest puts that on all loggers that do not propagate as well.
    root = Sink()
    logging.getLogger().addHandler(root)
    try:
        record_rdzv_event(_rdzv_event())
    finally:
        logging.getLogger().removeHandler(root)
    assert sink.lines
    assert not root.lines


def test_a_handler_registered_after_the_first_event_takes_effect_and_can_be_taken_back(register: Register) -> None:
    first, second = Sink(), Sink()
    register("late", first)
    record(_event("1"), "late")
    assert register_logging_handler("late", second) is first
    record(_event("2"), "late")
    assert register_logging_handler("late", first) is second
    record(_event("3"), "late")
    assert [json.loads(line)["name"] for line in first.lines] == ["1", "3"]
    assert [json.loads(line)["name"] for line in second.lines] == ["2"]


def test_the_mapping_that_users_of_torch_change_takes_effect() -> None:
    from elasticjob.events import handlers

    sink, before = Sink(), handlers._log_handlers["dynamic_rendezvous"]
    handlers._log_handlers["dynamic_rendezvous"] = sink
    try:
        record_rdzv_event(_rdzv_event())
    finally:
        handlers._log_handlers["dynamic_rendezvous"] = before
    assert sink.lines == [_rdzv_event().serialize()]


def test_a_handler_that_somebody_put_on_the_logger_gets_events_too(sink: Sink) -> None:
    other, sink_logger = Sink(), logging.getLogger("torchelastic-events-dynamic_rendezvous")
    sink_logger.addHandler(other)
    try:
        record_rdzv_event(_rdzv_event())
    finally:
        sink_logger.removeHandler(other)
    assert other.lines == sink.lines == [_rdzv_event().serialize()]


def test_a_destination_can_be_taken_away_and_a_built_in_one_becomes_what_it_was() -> None:
    register_logging_handler("brief", Sink())
    register_logging_handler("brief", None)
    with pytest.raises(KeyError, match="brief"):
        get_logging_handler("brief")
    register_logging_handler("dynamic_rendezvous", Sink())
    register_logging_handler("dynamic_rendezvous", None)
    assert isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler)


def test_only_handlers_with_a_destination_can_be_registered() -> None:
    with pytest.raises(TypeError, match="logging"):
        register_logging_handler("x", print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-empty"):
        register_logging_handler("", Sink())


def test_an_unknown_destination_drops_the_event_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        record(_event(), destination="nowhere")
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]
    assert "nowhere" in caplog.text


@pytest.mark.parametrize(
    ("value", "level"), [("debug", 10), ("WARNING", 30), ("15", 15), ("nonsense", 20), ("", 20), (None, 20)]
)
def test_the_level_comes_from_the_environment(
    value: str | None, level: int, monkeypatch: pytest.MonkeyPatch, register: Register
) -> None:
    if value is None:
        monkeypatch.delenv("LOGLEVEL", raising=False)
    else:
        monkeypatch.setenv("LOGLEVEL", value)
    sink, destination = Sink(), f"level-{value}"
    register(destination, sink)
    record(_event(), destination)
    assert logging.getLogger(f"torchelastic-events-{destination}").level == level
    assert len(sink.lines) == (1 if level <= logging.INFO else 0)


def _written(sink: Sink) -> Any:
    return json.loads(sink.lines[-1])


def test_a_constructed_event_says_where_it_comes_from(sink: Sink) -> None:
    construct_and_record_rdzv_event("run", "hello", NodeState.INIT)
    written = _written(sink)
    assert written["name"] == ("test_recording.py:test_a_constructed_event_says_where_it_comes_from")
    assert written["pid"] == os.getpid()
    assert written["hostname"]
    assert written["error_trace"] == ""


def test_a_constructed_event_keeps_what_it_is_given(sink: Sink) -> None:
    construct_and_record_rdzv_event(
        "run", "m", NodeState.RUNNING, "Joined", "demo-0", 0, "10.0.0.1:29500", local_id=0, rank=0
    )
    assert RdzvEvent.deserialize(sink.lines[-1]) == RdzvEvent(
        "test_recording.py:Joined", "run", "m", "demo-0", 0, NodeState.RUNNING, "10.0.0.1:29500", 0, 0
    )


def test_a_failure_carries_the_trace_of_the_exception_that_is_handled(sink: Sink) -> None:
    try:
        _RaisingSink().emit(logging.makeLogRecord({}))
    except OSError:
        construct_and_record_rdzv_event("run", "m", NodeState.FAILED)
        failed = _written(sink)
        construct_and_record_rdzv_event("run", "m", NodeState.RUNNING)
    assert "OSError: disk is full" in failed["error_trace"]
    assert _written(sink)["error_trace"] == ""


def test_a_failure_without_an_exception_has_no_trace(sink: Sink) -> None:
    construct_and_record_rdzv_event("run", "m", NodeState.FAILED)
    assert _written(sink)["error_trace"] == ""


def test_nothing_is_looked_up_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("was called")

    monkeypatch.setattr(events, "record_rdzv_event", fail)
    monkeypatch.setattr(socket, "getfqdn", fail)
    monkeypatch.setattr(os, "getpid", fail)
    construct_and_record_rdzv_event("run", "m", NodeState.RUNNING)


def test_an_event_that_nobody_wants_costs_less_than_one_that_is_encoded() -> None:
    record(_event())
    event = _event()
    unwanted = min(timeit.repeat(lambda: record(event), number=2_000, repeat=5))
    encoded = min(timeit.repeat(lambda: event.serialize(), number=2_000, repeat=5))
    assert unwanted < encoded


def test_a_bad_value_never_reaches_the_caller(sink: Sink) -> None:
    construct_and_record_rdzv_event(object(), b"\xff", "odd", rank={1})  # type: ignore[arg-type]
    record(None, "dynamic_rendezvous")  # type: ignore[arg-type]
    assert _written(sink)["rank"] == "{1}"


class _RaisingSink(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("disk is full")


def test_a_sink_that_raises_is_told_once_and_does_no_harm(register: Register, caplog: pytest.LogCaptureFixture) -> None:
    register("raising", _RaisingSink())
    for _ in range(5):
        record(_event(), "raising")
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]
    assert "disk is full" in caplog.text


class _BlockingSink(Sink):
    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.released.wait()
        super().emit(record)


def test_a_sink_that_blocks_costs_one_short_delay_and_loses_nothing(register: Register) -> None:
    sink = _BlockingSink()
    register("blocking", sink)
    begin = time.monotonic()
    for number in range(100):
        record(_event(str(number)), "blocking")
    assert time.monotonic() - begin < 5
    assert sink.lines == []
    sink.released.set()
    carriers.flush(30)
    assert [json.loads(line)["name"] for line in sink.lines] == [str(number) for number in range(100)]


def test_a_sink_that_records_events_itself_does_not_deadlock(register: Register) -> None:
    class Chatty(Sink):
        def emit(self, record: logging.LogRecord) -> None:
            super().emit(record)
            if len(self.lines) < 3:
                events.record(_event(f"about {len(self.lines)}"), "chatty")

    sink = Chatty()
    register("chatty", sink)
    record(_event(), "chatty")
    carriers.flush(30)
    assert len(sink.lines) == 3


def test_many_threads_record_each_event_exactly_once_and_in_order(register: Register) -> None:
    sinks = {"left": Sink(), "right": Sink()}
    for destination, sink in sinks.items():
        register(destination, sink)
    barrier = threading.Barrier(64)

    def work(number: int) -> None:
        barrier.wait()
        for step in range(10):
            for destination in sinks:
                record(Event(str(number), EventSource.WORKER, step), destination)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    carriers.flush(30)
    for sink in sinks.values():
        written = [Event.deserialize(line) for line in sink.lines]
        for number in range(64):
            assert [event.timestamp for event in written if event.name == str(number)] == list(range(10))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_can_record(register: Register, tmp_path: Path) -> None:
    path = tmp_path / "events"
    handler = logging.FileHandler(path)
    register("forked", handler)
    record(_event("parent"), "forked")
    child = os.fork()
    if child == 0:
        record(_event("child"), "forked")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    handler.close()
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == ["parent", "child"]
