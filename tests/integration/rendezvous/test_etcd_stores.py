"""Waiting on etcd when the server forgets old revisions, and what a wait leaves behind (jplana/python-etcd#250,
dims/etcd3-gateway#15)."""

import base64
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous.backend import ErasableState
from elasticjob.rendezvous.backends.etcd import EtcdRendezvousBackend, EtcdV3Store
from elasticjob.rendezvous.backends.etcd_client import EtcdClient, KeyValue
from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elasticjob.rendezvous.etcd_store import EtcdStore
from elasticjob.rendezvous.store import Store
from tests.cluster.etcd_server import EtcdServer
from tests.integration.rendezvous.harness import EtcdHarness, EtcdV2Harness, Harness
from tests.integration.rendezvous.servers import answering


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += str(descriptor.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


class CountingV2Client:
    """A python-etcd client that counts requests, and does something between the first read and the wait after it."""

    def __init__(self, client: Any, between: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._between: Callable[[], None] | None = between
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def read(self, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        return self._client.read(*args, **kwargs)

    def watch(self, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        if self._between is not None:
            between, self._between = self._between, None
            between()
        return self._client.watch(*args, **kwargs)


class CountingV3Client(EtcdClient):
    """The same for the v3 API."""

    between: Callable[[], None] | None = None
    requests = 0

    def get(self, key: str) -> tuple[KeyValue | None, int]:
        self.requests += 1
        return super().get(key)

    def wait_for_change(self, key: str, *, after: int, timeout: float) -> None:
        self.requests += 1
        if self.between is not None:
            between, self.between = self.between, None
            between()
        super().wait_for_change(key, after=after, timeout=timeout)


def test_a_v2_wait_goes_on_when_the_server_has_forgotten_its_index(etcd_v2_harness: EtcdV2Harness) -> None:
    client = connect(etcd_v2_harness.etcd_options)
    directory = f"{etcd_v2_harness.prefix}/store"

    def write_a_lot() -> None:
        for number in range(1500):
            client.write(f"{etcd_v2_harness.prefix}/elsewhere/{number % 10}", str(number))
        threading.Timer(0.5, EtcdStore(client, directory).set, ("key", "value")).start()

    counting = CountingV2Client(client, write_a_lot)
    store = EtcdStore(counting, directory, timedelta(seconds=30))
    assert store.get("key") == b"value"
    # Read, a wait that the server refuses, read, wait, read.
    assert counting.requests == 5


def test_a_v2_wait_on_a_quiet_key_is_not_woken_up_by_writes_elsewhere(etcd_v2_harness: EtcdV2Harness) -> None:
    client = connect(etcd_v2_harness.etcd_options)
    directory = f"{etcd_v2_harness.prefix}/store"
    busy = EtcdStore(client, directory)
    counting = CountingV2Client(client)
    store = EtcdStore(counting, directory, timedelta(seconds=3))

    def read_in_vain() -> None:
        with pytest.raises(LookupError):
            store.get("quiet")

    reader = threading.Thread(target=read_in_vain)
    reader.start()
    while reader.is_alive():
        busy.set("busy", "x")
    assert counting.requests <= 4


def test_a_v3_wait_goes_on_when_the_server_has_compacted_its_revision(etcd_harness: EtcdHarness) -> None:
    client = CountingV3Client(etcd_harness.etcd_options, ttl=600)
    writer = EtcdClient(etcd_harness.etcd_options, ttl=600)

    def write_and_compact() -> None:
        for number in range(20):
            writer.put(f"{etcd_harness.prefix}/elsewhere", str(number).encode())
        _, revision = writer.get("x")
        writer._post("/kv/compaction", {"revision": revision, "physical": True})
        threading.Timer(0.5, EtcdV3Store(writer, "run", prefix=etcd_harness.prefix).set, ("key", "value")).start()

    client.between = write_and_compact
    store = EtcdV3Store(client, "run", prefix=etcd_harness.prefix)
    store.set_timeout(timedelta(seconds=30))
    assert store.get("key") == b"value"
    # Read, a wait that the server cancels, read, wait, read.
    assert client.requests == 5


def test_compaction_does_not_touch_the_state_or_its_token(etcd_harness: EtcdHarness) -> None:
    client = EtcdClient(etcd_harness.etcd_options, ttl=600)
    backend = etcd_harness.backend("run")
    result = backend.set_state(b"x")
    assert result is not None
    client.put(f"{etcd_harness.prefix}/elsewhere", b"1")
    client._post("/kv/compaction", {"revision": client.get("x")[1], "physical": True})
    assert backend.get_state() == (b"x", result[1])
    replaced = backend.set_state(b"y", result[1])
    assert replaced is not None
    assert replaced[2]


def _etcd_harness(name: str, request: pytest.FixtureRequest) -> Harness:
    harness: Harness = request.getfixturevalue("etcd_harness" if name == "etcd" else "etcd_v2_harness")
    return harness


@pytest.mark.parametrize("name", ["etcd", "etcd-v2"])
def test_200_waits_that_run_out_leave_no_socket(name: str, request: pytest.FixtureRequest) -> None:
    store = _etcd_harness(name, request).store("run")

    def wait_in_vain(store: Store) -> None:
        with pytest.raises(LookupError):
            store.wait(["never"], timedelta(milliseconds=20))

    wait_in_vain(store)
    before = open_sockets()
    for _ in range(200):
        wait_in_vain(store)
    assert open_sockets() <= before + 1


@pytest.mark.parametrize("name", ["etcd", "etcd-v2"])
def test_a_server_that_goes_away_is_reported_and_the_token_is_good_when_it_is_back(
    name: str, request: pytest.FixtureRequest
) -> None:
    harness = _etcd_harness(name, request)
    server: EtcdServer = harness.server  # type: ignore[attr-defined]
    backend, store = harness.make("run", read_timeout=2)
    result = backend.set_state(b"x")
    assert result is not None
    server.stop()
    try:
        with pytest.raises(RendezvousConnectionError):
            store.get("key")
        with pytest.raises(RendezvousConnectionError):
            backend.get_state()
    finally:
        server.start()
    assert backend.get_state() == (b"x", result[1])
    replaced = backend.set_state(b"y", result[1])
    assert replaced is not None
    assert replaced[2]


def test_the_state_of_a_run_expires_after_its_last_write(etcd_harness: EtcdHarness) -> None:
    client = EtcdClient(etcd_harness.etcd_options, ttl=4)
    backend = EtcdRendezvousBackend(client, "run", prefix=etcd_harness.prefix)
    result = backend.set_state(b"0")
    assert result is not None
    ends = time.monotonic() + 6
    number = 0
    while time.monotonic() < ends:
        number += 1
        result = backend.set_state(str(number).encode(), result[1])
        assert result is not None
        assert result[2]
        time.sleep(0.2)
    deadline = time.monotonic() + 60
    while backend.get_state() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_write_goes_on_when_the_server_has_lost_its_lease(etcd_harness: EtcdHarness) -> None:
    client = EtcdClient(etcd_harness.etcd_options, ttl=600)
    backend = EtcdRendezvousBackend(client, "run", prefix=etcd_harness.prefix)
    assert backend.set_state(b"x") is not None
    client._post("/lease/revoke", {"ID": client._lease})
    assert backend.get_state() is None
    result = backend.set_state(b"y")
    assert result is not None
    assert result[2]


def test_a_server_without_the_v2_api_is_named_within_the_time_out(
    etcd_v3: EtcdServer, etcd_v2_harness: EtcdV2Harness
) -> None:
    backend, store = etcd_v2_harness.make("run", endpoint=etcd_v3.endpoint, read_timeout=5)
    for call in (
        backend.get_state,
        lambda: backend.set_state(b"x"),
        lambda: store.get("a"),
        lambda: store.set("a", "1"),
    ):
        started = time.monotonic()
        with pytest.raises(RendezvousConnectionError, match=rf"{etcd_v3.endpoint}.*does not offer the v2 API"):
            call()
        assert time.monotonic() - started < 5


def test_a_directory_in_the_place_of_a_v2_state_is_damage(etcd_v2_harness: EtcdV2Harness) -> None:
    client = connect(etcd_v2_harness.etcd_options)
    client.write(f"{etcd_v2_harness.prefix}/rendezvous/run/below", "x")
    backend = etcd_v2_harness.backend("run")
    with pytest.raises(RendezvousStateError, match="/rendezvous/run"):
        backend.get_state()
    with pytest.raises(RendezvousStateError, match="/rendezvous/run"):
        backend.set_state(b"x")


def test_the_v2_state_and_the_store_of_a_run_are_made_to_expire(etcd_v2_harness: EtcdV2Harness) -> None:
    backend, store = etcd_v2_harness.make("run", ttl="100")
    backend.set_state(b"x")
    store.set("a", "1")
    client = connect(etcd_v2_harness.etcd_options)
    assert 0 < client.read(f"{etcd_v2_harness.prefix}/rendezvous/run").ttl <= 100
    assert 0 < client.read(f"{etcd_v2_harness.prefix}/store/run").ttl <= 100
    assert store.get("a") == b"1"


@pytest.mark.parametrize("name", ["etcd", "etcd-v2"])
@pytest.mark.parametrize(
    ("status", "text"), [(200, "{}"), (200, "[]"), (200, "<html>"), (404, '{"message": "no such page"}')]
)
def test_a_web_server_that_is_no_etcd_is_a_connection_error(
    name: str, status: int, text: str, request: pytest.FixtureRequest
) -> None:
    with answering(status, text) as (url, _):
        endpoint = url.removeprefix("http://")
        backend, store = _etcd_harness(name, request).make("run", endpoint=endpoint, read_timeout=5)
        calls = (backend.get_state, lambda: backend.set_state(b"x"), lambda: store.get("a"), lambda: store.add("a", 1))
        for call in calls:
            with pytest.raises(RendezvousConnectionError, match=url):
                call()


def test_a_state_without_a_time_to_live_has_no_lease(etcd_harness: EtcdHarness) -> None:
    backend, _ = etcd_harness.make("run", ttl="0")
    backend.set_state(b"x")
    client = EtcdClient(etcd_harness.etcd_options, ttl=600)
    answer = client._post("/kv/range", {"key": base64.b64encode(etcd_harness._key("run").encode()).decode()})
    assert "lease" not in answer["kvs"][0]


def test_a_state_without_a_time_to_live_stays_in_the_v2_api(etcd_v2_harness: EtcdV2Harness) -> None:
    backend, _ = etcd_v2_harness.make("run", ttl="0")
    backend.set_state(b"x")
    assert connect(etcd_v2_harness.etcd_options).read(f"{etcd_v2_harness.prefix}/rendezvous/run").ttl is None


@pytest.mark.parametrize("which", ["etcd_harness", "etcd_v2_harness"])
def test_a_state_that_is_deleted_is_gone(request: pytest.FixtureRequest, which: str) -> None:
    harness: EtcdHarness | EtcdV2Harness = request.getfixturevalue(which)
    backend = harness.backend("run")
    assert isinstance(backend, ErasableState)
    backend.delete_state()
    backend.set_state(b"x")
    backend.delete_state()
    assert backend.get_state() is None
    backend.delete_state()
