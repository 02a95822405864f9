"""Pauses and outages."""

import logging

import pytest

from elasticjob.rendezvous.pace import Outage, full_jitter


def test_pauses_grow_to_the_cap_and_no_further() -> None:
    largest = [max(full_jitter(attempt, cap=5.0, first=1.0) for _ in range(300)) for attempt in (0, 2, 1_000_000)]
    assert largest[0] <= 1.0 < largest[1] <= 4.0 < largest[2] <= 5.0


def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("test"), "the server")
    with caplog.at_level(logging.WARNING):
        outage.end()
        for _ in range(5):
            outage.note("refused")
        outage.end()
        outage.end()
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "the server does not answer",
        caplog.records[1].getMessage(),
    ]
    assert "answers again" in caplog.records[1].getMessage()
