"""The helper that runs an etcd server, with a current etcd and with Debian's 3.4."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.etcd_rendezvous import create_rdzv_handler
from elasticjob.rendezvous.etcd_rendezvous_backend import EtcdRendezvousBackend
from elasticjob.rendezvous.etcd_rendezvous_backend import create_backend as create_torch_backend
from elasticjob.rendezvous.etcd_server import EtcdServer
from elasticjob.rendezvous.etcd_store import EtcdStore
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.cluster.build import binaries
from tests.cluster.packages import ETCD_V2_PACKAGES, ensure

pytestmark = pytest.mark.timeout(60, func_only=True)


@pytest.fixture
def old_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdServer]:
    ensure(ETCD_V2_PACKAGES)
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(ETCD_V2_PACKAGES["etcd-server"]))
    server = EtcdServer()
    server.start(stderr=subprocess.DEVNULL)
    yield server
    server.stop()


@pytest.fixture
def current_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdServer]:
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(binaries() / "etcd"))
    server = EtcdServer()
    server.start(stderr=subprocess.DEVNULL)
    yield server
    server.stop()


def test_an_old_server_offers_both_apis(old_server: EtcdServer) -> None:
    assert old_server.get_client().write("/key", "value").value == "value"
    assert old_server.get_v3_client().put("key", "value")


def test_a_current_server_offers_the_v3_api_and_says_so_when_asked_for_v2(current_server: EtcdServer) -> None:
    assert current_server.get_v3_client().put("key", "value")
    with pytest.raises(RendezvousConnectionError, match="does not offer the v2 API"):
        current_server.get_client()


def test_backends_work_on_a_server_of_this_helper(old_server: EtcdServer) -> None:
    for name in ("etcd", "etcd-v2"):
        backend, store = create_backend(name, RendezvousParameters(name, old_server.get_endpoint(), "run", 1, 1))
        assert backend.set_state(b"x") is not None
        store.set("a", "1")
        assert store.get("a") == b"1"


def test_the_legacy_rendezvous_works_on_a_server_of_this_helper(old_server: EtcdServer) -> None:
    handler = create_rdzv_handler(RendezvousParameters("etcd", old_server.get_endpoint(), "run", 1, 1, "127.0.0.1"))
    assert handler.next_rendezvous().world_size == 1
    assert handler.shutdown()


def test_the_backend_under_the_names_of_torch_uses_the_keys_of_torch(old_server: EtcdServer) -> None:
    params = RendezvousParameters("etcd-v2", old_server.get_endpoint(), "run_1", 1, 1, read_timeout="10")
    backend, store = create_torch_backend(params)
    assert isinstance(backend, EtcdRendezvousBackend)
    assert isinstance(store, EtcdStore)
    backend.set_state(b"state")
    store.set("key", "value")
    client = old_server.get_client()
    assert client.read("/torch/elastic/rendezvous/run_1").value == "c3RhdGU="
    assert client.read("/torch/elastic/store/a2V5").value == "dmFsdWU="
    assert store.client.read_timeout == 10


def test_the_backend_under_the_names_of_torch_speaks_the_words_of_torch_and_keeps_the_cause() -> None:
    def params(endpoint: str = "localhost:1", **options: object) -> RendezvousParameters:
        return RendezvousParameters("etcd-v2", endpoint, "run", 1, 1, None, **options)

    with pytest.raises(ValueError, match=r"^The protocol must be HTTP or HTTPS\.$"):
        create_torch_backend(params(protocol="ftp"))
    with pytest.raises(ValueError, match=r"^The read timeout must be a positive integer\.$"):
        create_torch_backend(params(read_timeout="0"))
    with pytest.raises(RendezvousConnectionError, match=r"^The connection to etcd has failed") as raised:
        create_torch_backend(params())
    assert "http://localhost:1" in str(raised.value.__cause__)


def test_stopping_ends_the_process_and_removes_only_data_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ensure(ETCD_V2_PACKAGES)
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(ETCD_V2_PACKAGES["etcd-server"]))
    server = EtcdServer(str(tmp_path / "data"))
    server.start(stderr=subprocess.DEVNULL)
    server.get_client().write("/key", "value")
    process = server._process
    assert process is not None
    server.stop()
    server.stop()
    assert process.returncode is not None
    again = EtcdServer(str(tmp_path / "data"))
    again.start(stderr=subprocess.DEVNULL)
    try:
        assert again.get_client().read("/key").value == "value"
    finally:
        again.stop()
    assert (tmp_path / "data").is_dir()


def test_a_server_cannot_be_started_twice(old_server: EtcdServer) -> None:
    with pytest.raises(RuntimeError, match="started already"):
        old_server.start()


def test_a_program_that_ends_at_once_is_reported_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "etcd"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "etcd Version: 3.4.0" && exit 0\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(program))
    with pytest.raises(RuntimeError, match="exit code 7"):
        EtcdServer().start(num_retries=2)
