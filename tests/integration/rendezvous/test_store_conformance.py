"""What every store must do, run on each of them: on a real API server and real etcd servers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.store import PrefixStore, Store
from tests.integration.rendezvous.harness import Harness

ODD_TEXTS = ["a", "a/b", "a/b/", "", " ", ".", "..", "/", "é", "x%2Fy", "q?wait=true", "???", "~~~", "k" * 100]
ODD_KEYS: list[str | bytes] = [*ODD_TEXTS, b"\xff\xfe\xfd"]


def test_a_key_that_nobody_wrote_is_not_there_and_no_error(harness: Harness) -> None:
    store = harness.store("run")
    assert store.check(["a"]) is False
    assert store.num_keys() == 0
    assert store.delete_key("a") is False


def test_a_read_waits_for_its_time_out_and_names_the_key(harness: Harness) -> None:
    store = harness.store("run")
    store.set_timeout(timedelta(seconds=1))
    started = time.monotonic()
    with pytest.raises(LookupError, match=r"'a' was not written within 1 s"):
        store.get("a")
    assert 1 <= time.monotonic() - started < 2.5


def test_a_read_gets_what_another_node_writes_while_it_waits(harness: Harness) -> None:
    reader, writer = harness.store("run"), harness.store("run")
    threading.Timer(0.5, writer.set, ("a", "value")).start()
    started = time.monotonic()
    assert reader.get("a") == b"value"
    assert 0.4 < time.monotonic() - started < 10


def test_a_wait_names_the_key_that_did_not_come(harness: Harness) -> None:
    store = harness.store("run")
    threading.Timer(0.2, harness.store("run").set, ("a", "value")).start()
    with pytest.raises(LookupError, match=r"'b' was not written within 1 s"):
        store.wait(["a", "b"], timedelta(seconds=1))
    assert store.check(["a"])


def test_a_wait_ends_when_all_keys_are_there(harness: Harness) -> None:
    store = harness.store("run")
    store.set("a", "1")
    threading.Timer(0.2, harness.store("run").set, ("b", "2")).start()
    store.wait(["a", "b"], timedelta(seconds=10))
    assert store.check(["a", "b"])
    assert not store.check(["a", "c"])


def test_a_wait_without_time_only_looks(harness: Harness) -> None:
    store = harness.store("run")
    store.set("a", "1")
    store.wait(["a"], timedelta(0))
    with pytest.raises(LookupError):
        store.wait(["b"], timedelta(0))


def test_additions_of_16_threads_are_all_counted(harness: Harness) -> None:
    stores = [harness.store("run") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        sums = list(pool.map(lambda store: store.add("n", 1), stores))
    assert sorted(sums) == list(range(1, 17))
    assert stores[0].get("n") == b"16"
    assert stores[0].add("n", -6) == 10


def test_adding_to_something_else_than_a_number_is_refused(harness: Harness) -> None:
    store = harness.store("run")
    store.set("n", "many")
    with pytest.raises(ValueError, match=r"'n' holds b'many'"):
        store.add("n", 1)
    assert store.get("n") == b"many"


def test_compare_set_writes_only_over_what_was_expected(harness: Harness) -> None:
    store = harness.store("run")
    assert store.compare_set("a", "something", "1") == b"something"
    assert not store.check(["a"])
    assert store.compare_set("a", "", "1") == b"1"
    assert store.compare_set("a", "", "2") == b"1"
    assert store.compare_set("a", "1", "2") == b"2"
    assert store.get("a") == b"2"


def test_of_many_that_compare_and_set_exactly_one_wins(harness: Harness) -> None:
    stores = [harness.store("run") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda n: stores[n].compare_set("leader", "", str(n)), range(8)))
    assert len(set(values)) == 1


def test_keys_and_values_of_any_bytes_are_kept_apart(harness: Harness) -> None:
    store = harness.store("run")
    for number, key in enumerate(ODD_KEYS):
        store.set(key, bytes([number, 0, 255]))
    assert store.num_keys() == len(ODD_KEYS)
    for number, key in enumerate(ODD_KEYS):
        assert store.get(key) == bytes([number, 0, 255])
    for key in ODD_KEYS:
        assert store.delete_key(key)
    assert store.num_keys() == 0


def test_text_and_its_utf_8_bytes_are_the_same_key(harness: Harness) -> None:
    store = harness.store("run")
    store.set("é", "1")
    assert store.get("é".encode()) == b"1"


def test_an_empty_value_is_a_value(harness: Harness) -> None:
    store = harness.store("run")
    store.set("a", "")
    assert store.get("a") == b""
    assert store.check(["a"])


def test_runs_and_rounds_do_not_see_each_others_keys(harness: Harness) -> None:
    stores: list[Store] = [harness.store("run"), harness.store("other"), harness.store("run/1")]
    stores += [PrefixStore(str(round_number), stores[0]) for round_number in (1, 2)]
    for number, store in enumerate(stores):
        assert not store.check(["MASTER_ADDR"])
        store.set("MASTER_ADDR", f"node-{number}")
    assert [store.get("MASTER_ADDR") for store in stores] == [f"node-{n}".encode() for n in range(len(stores))]


def test_a_store_whose_server_does_not_answer_is_an_error_within_the_time_out(
    server_harness: Harness, unusable_server: str
) -> None:
    _, store = server_harness.make("run", endpoint=unusable_server, read_timeout=1)
    started = time.monotonic()
    for call in (lambda: store.get("a"), lambda: store.set("a", "1"), lambda: store.add("a", 1)):
        with pytest.raises(RendezvousConnectionError) as raised:
            call()
        assert unusable_server in str(raised.value)
    assert time.monotonic() - started < 8
