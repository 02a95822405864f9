"""A peer-to-peer run that ends with its test, and a look at its events."""

from collections.abc import Iterator

import pytest

from elasticjob.events import register_logging_handler
from tests.unit.rendezvous.peer_run import Run, Sink


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.end()


@pytest.fixture
def sink() -> Iterator[Sink]:
    """Gets the rendezvous events of the test."""
    sink = Sink()
    before = register_logging_handler("dynamic_rendezvous", sink)
    yield sink
    register_logging_handler("dynamic_rendezvous", before)
