"""The store in memory and the prefixed view. (Every store runs the conformance suite as well.)"""

import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.rendezvous.store import (
    DEFAULT_TIMEOUT,
    InMemoryStore,
    PrefixStore,
    StoreTimeoutError,
    to_bytes,
)
from tests.unit.examples import FEW


def test_reads_wait_five_minutes_unless_told_otherwise() -> None:
    assert InMemoryStore().timeout == DEFAULT_TIMEOUT == timedelta(minutes=5)
    assert InMemoryStore(timedelta(seconds=3)).timeout == timedelta(seconds=3)


def test_a_time_out_can_be_changed_and_names_the_key() -> None:
    store = InMemoryStore()
    store.set_timeout(timedelta(milliseconds=10))
    with pytest.raises(StoreTimeoutError, match=r"'a' was not written within 0\.01 s"):
        store.get("a")


def test_a_read_is_woken_up_by_the_write() -> None:
    store = InMemoryStore()
    threading.Timer(0.01, store.set, ("a", b"1")).start()
    assert store.get("a") == b"1"


def test_only_text_and_bytes_are_stored() -> None:
    with pytest.raises(ValueError, match="must be str or bytes, not int"):
        InMemoryStore().set("a", 1)  # type: ignore[arg-type]
    assert to_bytes("é") == b"\xc3\xa9"


def test_a_key_can_be_deleted_and_waited_for_again() -> None:
    store = InMemoryStore(timedelta(0))
    store.set("a", "1")
    assert store.delete_key("a")
    with pytest.raises(LookupError):
        store.get("a")


def test_a_prefixed_store_takes_every_operation_below_its_prefix() -> None:
    below = InMemoryStore(timedelta(0))
    store = PrefixStore("round 1", below)
    store.set("a", "1")
    assert store.add("n", 2) == 2
    assert store.compare_set("c", "", "x") == b"x"
    assert store.check(["a", "n", "c"])
    assert store.get("a") == below.get("round 1/a")
    assert store.num_keys() == 3
    assert store.delete_key("a")
    assert store.timeout == timedelta(0)
    assert store.underlying_store is below


@FEW
@given(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
def test_different_prefixes_never_share_a_key(prefix: str, other: str, key: str, other_key: str) -> None:
    below = InMemoryStore()
    try:
        PrefixStore(prefix, below).set(key, "1")
        shared = PrefixStore(other, below).check([other_key])
    except UnicodeEncodeError:
        return
    assert shared == ((prefix, key) == (other, other_key))


def test_prefixes_can_be_nested() -> None:
    below = InMemoryStore()
    inner = PrefixStore("b", PrefixStore("a", below))
    inner.set("key", "1")
    assert below.get("a/b/key") == b"1"
    assert not PrefixStore("a/b", below).check(["key"])
