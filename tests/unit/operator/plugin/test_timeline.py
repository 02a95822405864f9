"""The rounds along time."""

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.operator.plugin.text import Style
from elasticjob.operator.plugin.timeline import spans, timeline
from tests.unit.operator.plugin.jobs import NOW, round_, running

HISTORY = running()["status"]["history"]


def bar(history: list[dict[str, Any]], *, ended: float = 0.0, width: int = 60) -> str:
    end = NOW - timedelta(seconds=ended)
    return timeline(history, end=end, now=NOW, style=Style(width=width))[0]


def test_without_a_round_there_is_nothing_to_draw() -> None:
    assert timeline([], end=NOW, now=NOW, style=Style()) == []


def test_between_two_rounds_is_the_time_in_which_the_new_one_formed() -> None:
    history = [round_(1, "14:00:00", 0, 2, ""), round_(2, "14:05:00", 2, 1, "", seconds=60.0)]
    assert [(span.round, span.seconds) for span in spans(history, end=NOW)] == [(1, 240.0), (0, 60.0), (2, 300.0)]


def test_bars_are_as_wide_as_their_time_and_as_high_as_their_nodes() -> None:
    history = [round_(1, "14:00:00", 0, 2, "", seconds=0), round_(2, "14:05:00", 2, 1, "", seconds=0)]
    assert bar(history) == "█" * 30 + "▄" * 30


def test_the_time_since_the_last_round_broke_is_a_gap() -> None:
    assert bar([round_(1, "14:00:00", 0, 2, "")], ended=300) == "█" * 31 + "·" * 29


def test_each_round_has_a_column_however_short_it_was() -> None:
    history = [round_(number, f"14:00:{number:02}", 1, 1, "", seconds=0) for number in range(20)]
    drawn = bar([{**one, "round": one["round"] + 1} for one in history], width=40)
    assert len(drawn) == 40
    assert drawn == "█" * 40


@pytest.mark.parametrize("width", [1, 5, 17, 80, 300])
def test_any_width_will_do(width: int) -> None:
    for line in timeline(HISTORY, end=NOW, now=NOW, style=Style(width=width))[:2]:
        assert len(line) <= max(width, len(HISTORY))


def test_rounds_that_all_formed_in_one_moment_can_be_drawn() -> None:
    history = [round_(1, "14:10:00", 0, 2, ""), round_(2, "14:10:00", 2, 2, "")]
    assert len(bar(history, width=10)) <= 10


def test_a_clock_that_went_backwards_gives_no_negative_time() -> None:
    history = [round_(1, "14:05:00", 0, 2, ""), round_(2, "14:01:00", 2, 2, "")]
    assert all(span.seconds >= 0 for span in spans(history, end=NOW))


def test_of_many_rounds_the_last_ones_are_listed() -> None:
    history = [round_(number, f"14:00:{number:02}", 1, 1, f"cause {number}") for number in range(1, 21)]
    lines = timeline(history, end=NOW, now=NOW, style=Style())
    assert lines[-1] == "(12 earlier rounds)"
    assert "cause 20" in lines[-2]
