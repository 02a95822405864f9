"""What is stored stays within its bytes, whatever characters somebody wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.operator.model.texts import shortened, stored_size

TEXTS = st.text(max_size=300)


def as_the_api_server_writes_it(text: str) -> str:
    """JSON as Go writes it: as Python does without ASCII escapes, but these stand as six characters."""
    written = json.dumps(text, ensure_ascii=False)[1:-1].replace("\\b", "\\u0008").replace("\\f", "\\u000c")
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written


@pytest.mark.parametrize("text", ["plain", "é", "😀", "<module>", 'a "b"', "line\nline\t", "\x01\x7f", "\u2028"])
def test_the_size_is_that_of_the_stored_form(text: str) -> None:
    assert stored_size(text) == len(as_the_api_server_writes_it(text).encode())


@given(text=TEXTS, limit=st.integers(3, 200))
def test_a_shortened_text_fits_and_is_an_end_of_the_whole(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert stored_size(short) <= limit
    assert short == text or text.endswith(short.removeprefix("…"))


@given(text=TEXTS)
def test_a_text_that_fits_stays_as_it_is(text: str) -> None:
    assert shortened(text, stored_size(text)) == text


def test_no_more_is_cut_than_needed() -> None:
    assert shortened("x" * 20, 10) == "…" + "x" * 7
