"""Short forms of sets and numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.model.indexes import format_indexes, format_numbers, parse_indexes, parse_numbers
from tests.unit.examples import FEW

INDEXES = st.integers(min_value=0, max_value=9_999)


@pytest.mark.parametrize(
    ("indexes", "text"),
    [((), ""), ((0,), "0"), ((0, 1), "0-1"), ((3, 1, 0, 2, 7), "0-3,7"), ((1, 3, 5), "1,3,5")],
)
def test_a_set_has_one_short_form(indexes: tuple[int, ...], text: str) -> None:
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == set(indexes)


def test_numbers_are_grouped_and_zero_is_left_out() -> None:
    assert format_numbers({0: 1, 1: 1, 5: 2, 6: 0}) == "0-1:1 5:2"


@FEW
@given(st.frozensets(INDEXES))
def test_sets_come_back(indexes: frozenset[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


@FEW
@given(st.dictionaries(INDEXES, st.integers(min_value=1, max_value=100)))
def test_numbers_come_back(numbers: dict[int, int]) -> None:
    assert parse_numbers(format_numbers(numbers)) == numbers


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "1-", "0-99999999999", "1:2"])
def test_other_forms_are_refused(text: str) -> None:
    if text == "1-":
        assert parse_indexes(text) == {1}
        return
    with pytest.raises(ValueError, match=r"."):
        parse_indexes(text)


@pytest.mark.parametrize("text", ["0", "0:x", "x:1", ":"])
def test_other_forms_of_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_numbers(text)


@pytest.mark.parametrize("text", ["0-20000,0-20000", "5,3", "3,3", "0-4,4-6"])
def test_ranges_that_do_not_ascend_are_refused_so_that_reading_has_a_bound(text: str) -> None:
    with pytest.raises(ValueError, match="is not within"):
        parse_indexes(",".join([text] * 1000))
    with pytest.raises(ValueError, match="is not within"):
        parse_indexes(text)


@pytest.mark.parametrize("text", ["0-20000:1 0-20000:2", "3:1 3:1"])
def test_an_index_with_two_numbers_is_refused_so_that_reading_has_a_bound(text: str) -> None:
    with pytest.raises(ValueError, match="another number already"):
        parse_numbers(text)


def test_ten_thousand_equal_nodes_take_a_few_bytes() -> None:
    assert format_numbers(dict.fromkeys(range(10_000), 1)) == "0-9999:1"
