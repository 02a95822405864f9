"""States and base64 are taken strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.rendezvous.backends.values import (
    check_new_state,
    check_stored_state,
    decode_base64,
    encode_base64,
)
from elasticjob.rendezvous.errors import RendezvousStateError


@given(st.binary())
def test_bytes_survive_base64(data: bytes) -> None:
    assert decode_base64(encode_base64(data), where="here") == data


@pytest.mark.parametrize("text", ["!!!!", "abc", "YWJj\n", "YWJj ", "YWJjé", "====", None, 5, b"YWJj", [], {}])
def test_anything_but_strict_base64_is_damage_with_a_place(text: object) -> None:
    with pytest.raises(RendezvousStateError, match="key x is corrupt"):
        decode_base64(text, where="key x")


def test_an_empty_state_is_refused_and_is_damage() -> None:
    with pytest.raises(RendezvousStateError, match="empty state to key x"):
        check_new_state(b"", where="key x")
    with pytest.raises(RendezvousStateError, match="key x is corrupt: it is empty"):
        check_stored_state(b"", where="key x")


def test_a_state_may_have_exactly_the_limit() -> None:
    check_new_state(b"12345", where="key x", limit=5)
    with pytest.raises(RendezvousStateError, match="has 6 bytes, but key x can hold at most 5"):
        check_new_state(b"123456", where="key x", limit=5)
