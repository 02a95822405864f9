"""What every state backend must do, run on each of them: on a real API server and real etcd servers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from tests.integration.rendezvous.harness import Harness, KubernetesHarness, MemoryHarness
from tests.integration.rendezvous.servers import Forwarder

ODD_RUN_IDS = [
    "team",
    "team/exp1",
    "team/exp1/",
    "../store",
    "..",
    ".",
    "a b",
    "A_b",
    "a_b",
    "_hidden",
    "é",
    "x%2Fy",
    "x/y",
    "x=2Fy",
    "q?wait=true",
    "h#1",
    "quote\"'\\",
    "line\nbreak",
    "n" * 300,
    "n" * 299 + "m",
    "é" * 512,
]


def set_state(backend: RendezvousBackend, state: bytes, token: Any = None) -> tuple[bytes, Any, bool]:
    result = backend.set_state(state, token)
    assert result is not None
    return result


def test_the_backend_has_the_name_it_was_asked_for_by(harness: Harness) -> None:
    assert harness.backend("run").name == harness.name


def test_a_run_without_state_has_none(harness: Harness) -> None:
    assert harness.backend("run").get_state() is None


def test_the_first_state_is_stored(harness: Harness) -> None:
    state, token, has_set = set_state(harness.backend("run"), b"x")
    assert (state, has_set) == (b"x", True)
    assert token is not None


def test_the_stored_state_is_read_with_the_token_of_its_write_by_any_node(harness: Harness) -> None:
    writer, reader = harness.backend("run"), harness.backend("run")
    _, token, _ = set_state(writer, b"x")
    assert reader.get_state() == (b"x", token)


def test_the_current_token_replaces_the_state_and_is_used_up(harness: Harness) -> None:
    backend = harness.backend("run")
    _, first, _ = set_state(backend, b"x")
    state, second, has_set = set_state(backend, b"y", first)
    assert (state, has_set) == (b"y", True)
    assert first != second


def test_a_stale_token_changes_nothing_and_gets_the_current_state(harness: Harness) -> None:
    backend = harness.backend("run")
    _, first, _ = set_state(backend, b"x")
    _, second, _ = set_state(backend, b"y", first)
    assert set_state(backend, b"z", first) == (b"y", second, False)
    assert backend.get_state() == (b"y", second)


def test_writing_the_same_bytes_again_still_uses_up_the_token(harness: Harness) -> None:
    backend = harness.backend("run")
    _, first, _ = set_state(backend, b"x")
    _, second, _ = set_state(backend, b"x", first)
    assert first != second
    assert set_state(backend, b"x", first) == (b"x", second, False)


def test_no_token_does_not_replace_a_state_that_exists(harness: Harness) -> None:
    backend = harness.backend("run")
    _, token, _ = set_state(backend, b"x")
    assert set_state(backend, b"y") == (b"x", token, False)


@pytest.mark.parametrize("token", ["invalid", "1", "", 0, 1, -1, 1.5, b"", (), ("a", "b"), False, True, object()])
def test_a_token_that_is_none_of_ours_changes_nothing(harness: Harness, token: object) -> None:
    backend = harness.backend("run")
    _, current, _ = set_state(backend, b"x")
    assert set_state(backend, b"y", token) == (b"x", current, False)


def test_a_foreign_token_does_not_create_a_state(harness: Harness) -> None:
    backend = harness.backend("run")
    assert backend.set_state(b"x", "invalid") is None
    assert backend.get_state() is None


def test_the_token_of_another_backend_changes_nothing(harness: Harness) -> None:
    backend, other = harness.backend("run"), MemoryHarness().backend("run")
    _, foreign, _ = set_state(other, b"x")
    _, current, _ = set_state(backend, b"x")
    assert set_state(backend, b"y", foreign) == (b"x", current, False)


def test_the_token_of_another_run_changes_neither(harness: Harness) -> None:
    ours, theirs = harness.backend("ours"), harness.backend("theirs")
    _, our_token, _ = set_state(ours, b"ours")
    _, their_token, _ = set_state(theirs, b"theirs")
    assert set_state(ours, b"y", their_token) == (b"ours", our_token, False)
    assert theirs.get_state() == (b"theirs", their_token)


def test_a_state_that_was_deleted_is_not_written_with_its_old_token(harness: Harness) -> None:
    backend = harness.backend("run")
    _, token, _ = set_state(backend, b"x")
    harness.remove("run")
    assert backend.get_state() is None
    assert backend.set_state(b"y", token) is None
    assert backend.get_state() is None


def test_a_state_that_was_deleted_and_made_anew_has_another_token(harness: Harness) -> None:
    backend = harness.backend("run")
    _, old, _ = set_state(backend, b"x")
    harness.remove("run")
    _, new, has_set = set_state(backend, b"x")
    assert has_set
    assert old != new
    assert set_state(backend, b"y", old) == (b"x", new, False)


def test_a_damaged_state_is_reported_by_name_and_left_as_it_is(harness: Harness) -> None:
    for what, value in harness.damaged_values.items():
        run_id = f"damaged: {what}"
        backend = harness.backend(run_id)
        _, token, _ = set_state(backend, b"x")
        harness.overwrite(run_id, value)
        before = harness.stored(run_id)
        with pytest.raises(RendezvousStateError, match=r"key|ConfigMap|memory"):
            backend.get_state()
        with pytest.raises(RendezvousStateError):
            backend.set_state(b"y")
        if harness.name != "memory":
            with pytest.raises(RendezvousStateError):
                backend.set_state(b"y", token)
        assert harness.stored(run_id) == before, what


def test_bytes_are_kept_as_they_are(harness: Harness) -> None:
    backend = harness.backend("run")
    state = bytes(range(256)) + b"cos\nsystem\n(S'exit 1'\ntR."
    set_state(backend, state)
    stored = backend.get_state()
    assert stored is not None
    assert stored[0] == state


def test_a_state_of_100_kb_is_stored(harness: Harness) -> None:
    backend = harness.backend("run")
    state = bytes(i % 251 for i in range(100_000))
    _, token, _ = set_state(backend, state)
    assert set_state(backend, state[::-1], token)[2]
    assert harness.backend("run").get_state() == (state[::-1], backend.get_state()[1])  # type: ignore[index]


def test_a_state_of_nearly_the_limit_is_stored(harness: Harness) -> None:
    backend = harness.backend("run")
    state = b"x" * 1_000_000
    assert set_state(backend, state)[2]
    stored = backend.get_state()
    assert stored is not None
    assert stored[0] == state


def test_a_state_over_the_limit_is_refused_by_name_and_number(server_harness: Harness) -> None:
    backend = server_harness.backend("run")
    _, token, _ = set_state(backend, b"x")
    with pytest.raises(RendezvousStateError, match=r"1000001 bytes, but (key|ConfigMap) .* at most 1000000"):
        backend.set_state(b"x" * 1_000_001, token)
    assert backend.get_state() == (b"x", token)


def test_an_empty_state_is_refused(harness: Harness) -> None:
    backend = harness.backend("run")
    with pytest.raises(RendezvousStateError, match="empty state"):
        backend.set_state(b"")
    assert backend.get_state() is None


def test_of_many_that_create_the_state_exactly_one_wins(harness: Harness) -> None:
    backends = [harness.backend("run") for _ in range(8)]
    together = threading.Barrier(len(backends))

    def create(number: int) -> tuple[bytes, Any, bool]:
        together.wait()
        return set_state(backends[number], f"writer {number}".encode())

    with ThreadPoolExecutor(len(backends)) as pool:
        results = list(pool.map(create, range(len(backends))))
    assert [has_set for _, _, has_set in results].count(True) == 1
    assert len({(state, token) for state, token, _ in results}) == 1


def test_of_many_that_hold_the_same_token_exactly_one_wins(harness: Harness) -> None:
    backends = [harness.backend("run") for _ in range(8)]
    _, token, _ = set_state(backends[0], b"start")
    together = threading.Barrier(len(backends))

    def replace(number: int) -> bool:
        together.wait()
        return set_state(backends[number], f"writer {number}".encode(), token)[2]

    with ThreadPoolExecutor(len(backends)) as pool:
        assert list(pool.map(replace, range(len(backends)))).count(True) == 1


def test_no_update_of_concurrent_writers_is_lost(harness: Harness) -> None:
    backends = [harness.backend("run") for _ in range(4)]
    set_state(backends[0], b"0")

    def count(backend: RendezvousBackend) -> None:
        for _ in range(5):
            stored = backend.get_state()
            assert stored is not None
            state, token = stored
            has_set = False
            while not has_set:
                state, token, has_set = set_state(backend, str(int(state) + 1).encode(), token)

    with ThreadPoolExecutor(len(backends)) as pool:
        list(pool.map(count, backends))
    stored = backends[0].get_state()
    assert stored is not None
    assert stored[0] == b"20"


def test_run_ids_of_any_look_have_each_their_own_state(harness: Harness) -> None:
    backends = {run_id: harness.backend(run_id) for run_id in ODD_RUN_IDS}
    for number, backend in enumerate(backends.values()):
        assert set_state(backend, f"state {number}".encode())[2]
    for number, run_id in enumerate(ODD_RUN_IDS):
        stored = harness.backend(run_id).get_state()
        assert stored is not None
        assert stored[0] == f"state {number}".encode()


@pytest.mark.parametrize("run_id", ["", " ", "\n\t", "n" * 5000, "é" * 513, "\ud800"])
def test_a_run_id_that_cannot_be_used_is_refused(harness: Harness, run_id: str) -> None:
    with pytest.raises(ValueError, match=r"run_id .*(non-empty|at most 1024|valid Unicode)"):
        harness.make(run_id)


def test_a_server_that_does_not_answer_is_an_error_within_the_time_out(
    server_harness: Harness, unusable_server: str
) -> None:
    backend = server_harness.backend("run", endpoint=unusable_server, read_timeout=1)
    for call in (backend.get_state, lambda: backend.set_state(b"x")):
        started = time.monotonic()
        with pytest.raises(RendezvousConnectionError) as raised:
            call()
        assert time.monotonic() - started < 3
        assert unusable_server in str(raised.value)
        assert raised.value.__cause__ is not None


def test_a_host_name_that_does_not_resolve_is_an_error_that_names_it(server_harness: Harness) -> None:
    backend = server_harness.backend("run", endpoint="no-such-host.invalid:1234", read_timeout=1)
    with pytest.raises(RendezvousConnectionError, match=r"no-such-host\.invalid:1234.*(resolve|known)"):
        backend.get_state()


def test_a_backend_is_made_without_its_server(server_harness: Harness) -> None:
    server_harness.make("run", endpoint="no-such-host.invalid")


def test_a_server_is_reached_over_ipv6(server_harness: Harness, forwarder: type[Forwarder], tmp_path: Path) -> None:
    if isinstance(server_harness, KubernetesHarness):
        target = urlsplit(server_harness.access.url).netloc
    else:
        target = server_harness.endpoint
    host, _, port = target.partition(":")
    options = server_harness.ipv6_options(forwarder(host, int(port)).port, tmp_path)
    backend, store = server_harness.make("run", **options)
    _, token, has_set = set_state(backend, b"x")
    store.set("key", "value")
    assert has_set
    assert server_harness.backend("run").get_state() == (b"x", token)
    assert server_harness.store("run").get("key") == b"value"
