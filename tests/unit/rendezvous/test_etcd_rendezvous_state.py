"""The round of the legacy etcd rendezvous as a value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.rendezvous import etcd_rendezvous_state as rounds
from elasticjob.rendezvous.etcd_rendezvous_state import Round, Status
from tests.unit.examples import FEW

names = st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=4).map(tuple)
any_round = st.builds(
    Round, status=st.sampled_from(Status), version=st.integers(0, 9), participants=names, confirmed=names
)
OPEN = Round(status=Status.JOINABLE, version=1)


@FEW
@given(any_round)
def test_a_round_survives_its_stored_form(current: Round) -> None:
    assert rounds.decode(rounds.encode(current)) == current


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "!!!!",
        "[]",
        "{}",
        '{"status": "odd"}',
        '{"status": "final", "version": "1"}',
        '{"status": "final", "version": -1}',
        '{"status": "final", "participants": "ab"}',
        '{"status": "final", "keep_alives": [1]}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_damage(text: str | None) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rounds.decode(text)


def test_the_stored_form_has_the_status_words_of_torch() -> None:
    assert {status.value for status in Status} == {"setup", "joinable", "frozen", "final", "closed"}
    assert json.loads(rounds.encode(OPEN))["status"] == "joinable"


def test_nodes_rank_in_the_order_of_arrival_and_the_last_place_freezes_the_round() -> None:
    one = rounds.joined(OPEN, "a", maximum=2)
    assert (one.participants, one.status) == (("a",), Status.JOINABLE)
    two = rounds.joined(one, "b", maximum=2)
    assert (two.participants, two.status) == (("a", "b"), Status.FROZEN)


def test_joining_twice_has_no_effect() -> None:
    one = rounds.joined(OPEN, "a", maximum=3)
    assert rounds.joined(one, "a", maximum=3) == one


def test_leaving_moves_the_later_ones_up() -> None:
    full = Round(status=Status.JOINABLE, version=1, participants=("a", "b", "c"))
    assert rounds.left(full, "b").participants == ("a", "c")
    assert rounds.left(full, "x") == full


def test_the_last_confirmation_makes_the_round_final() -> None:
    frozen = Round(status=Status.FROZEN, version=1, participants=("a", "b"))
    once = rounds.confirmed(frozen, "a")
    assert once.status is Status.FROZEN
    assert rounds.confirmed(once, "a") == once
    assert rounds.confirmed(once, "b").status is Status.FINAL


@pytest.mark.parametrize(
    ("members", "responsible"), [((), None), (("a",), None), (("a", "b"), "b"), (("a", "b", "c"), "b")]
)
def test_the_node_that_filled_the_minimum_times_the_last_call(
    members: tuple[str, ...], responsible: str | None
) -> None:
    current = Round(status=Status.JOINABLE, version=1, participants=members)
    timing = [node for node in "abc" if rounds.times_last_call(current, node, minimum=2)]
    assert timing == ([] if responsible is None else [responsible])


def test_nobody_times_the_last_call_of_a_frozen_round() -> None:
    assert not rounds.times_last_call(Round(status=Status.FROZEN, version=1, participants=("a", "b")), "b", minimum=2)


@pytest.mark.parametrize(("waiting", "expected"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_only_nodes_that_would_fit_in_count_as_waiting(waiting: int, expected: int) -> None:
    current = Round(status=Status.FINAL, version=1, participants=("a", "b"))
    assert rounds.admissible(current, waiting, maximum=4) == expected
    assert rounds.admissible(current, waiting, maximum=1) == 0


def test_any_round_can_be_closed() -> None:
    assert rounds.closed(None).status is Status.CLOSED
    assert rounds.closed(OPEN) == Round(status=Status.CLOSED, version=1)
