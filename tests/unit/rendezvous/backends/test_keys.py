"""Run ids are any text; keys and names made of them must be safe and different."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.rendezvous.backends.keys import MAX_RUN_ID_BYTES, check_run_id, escape, key_segment, object_name
from tests.unit.examples import FEW

DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
usable_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda text: bool(text.strip())
)


@pytest.mark.parametrize("run_id", ["dummy_run_id", "A-b_C.9", "0"])
def test_ordinary_ids_stand_in_the_key_as_they_are(run_id: str) -> None:
    assert key_segment(run_id) == run_id


@pytest.mark.parametrize(
    ("run_id", "segment"),
    [
        ("team/exp1", "team=2Fexp1"),
        ("..", "=2E."),
        (".", "=2E"),
        ("_hidden", "=5Fhidden"),
        ("x%2Fy", "x=252Fy"),
        ("x=2Fy", "x=3D2Fy"),
        ("é", "=C3=A9"),
        ("q?wait=true", "q=3Fwait=3Dtrue"),
    ],
)
def test_unusual_characters_are_escaped(run_id: str, segment: str) -> None:
    assert key_segment(run_id) == segment


@given(usable_ids, usable_ids)
def test_different_ids_have_different_keys_and_names(one: str, other: str) -> None:
    assert (key_segment(one) == key_segment(other)) == (one == other)
    assert (object_name(one, prefix="x") == object_name(other, prefix="x")) == (one == other)


@given(usable_ids)
def test_a_key_is_one_segment_that_survives_a_url(run_id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9=-][A-Za-z0-9_.=-]*", key_segment(run_id))


@given(usable_ids)
def test_a_name_is_one_that_kubernetes_accepts(run_id: str) -> None:
    name = object_name(run_id, prefix="elasticjob-rendezvous")
    assert DNS_1123.fullmatch(name)
    assert len(name) <= 253


@FEW
@given(st.binary(max_size=20), st.binary(max_size=20))
def test_different_bytes_are_escaped_differently(one: bytes, other: bytes) -> None:
    assert (escape(one) == escape(other)) == (one == other)


def test_ids_that_differ_in_case_or_far_behind_have_different_names() -> None:
    assert object_name("A_b", prefix="x") != object_name("a_b", prefix="x")
    assert object_name("n" * 299 + "a", prefix="x") != object_name("n" * 299 + "b", prefix="x")


def test_the_longest_id_is_accepted() -> None:
    assert check_run_id("n" * MAX_RUN_ID_BYTES) == "n" * MAX_RUN_ID_BYTES


@pytest.mark.parametrize("run_id", ["", " \t\n"])
def test_a_blank_id_is_refused(run_id: str) -> None:
    with pytest.raises(ValueError, match="run_id must be a non-empty string"):
        key_segment(run_id)


@pytest.mark.parametrize("run_id", ["n" * 1025, "é" * 513])
def test_too_long_an_id_is_refused_with_the_limit(run_id: str) -> None:
    with pytest.raises(ValueError, match=r"run_id has \d+ bytes, at most 1024"):
        object_name(run_id, prefix="x")


def test_an_id_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="run_id is not valid Unicode"):
        key_segment("\ud800")
