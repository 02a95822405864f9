"""A place where events can be looked at, and everything as before afterwards."""

import logging
from collections.abc import Callable, Iterator

import pytest

from elasticjob.events import register_logging_handler


class Sink(logging.Handler):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def register() -> Iterator[Callable[[str, logging.Handler], None]]:
    before: list[tuple[str, logging.Handler | None]] = []

    def do_register(destination: str, handler: logging.Handler) -> None:
        before.append((destination, register_logging_handler(destination, handler)))

    yield do_register
    for destination, handler in reversed(before):
        register_logging_handler(destination, handler)


@pytest.fixture
def sink(register: Callable[[str, logging.Handler], None]) -> Sink:
    """Gets the rendezvous events of the test."""
    sink = Sink()
    register("dynamic_rendezvous", sink)
    return sink
