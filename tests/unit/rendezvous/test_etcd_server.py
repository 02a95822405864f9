"""Which etcd executable is taken. (That it runs is tested with real ones.)"""

from pathlib import Path

import pytest

from elasticjob.rendezvous import etcd_server
from elasticjob.rendezvous.etcd_server import EtcdServer, find_etcd, find_free_port


@pytest.fixture(autouse=True)
def no_etcd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCHELASTIC_ETCD_BINARY_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(etcd_server, "__file__", str(tmp_path / "package" / "etcd_server.py"))


def make_executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_the_variable_comes_first_then_the_package_then_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = make_executable(tmp_path / "path" / "etcd")
    assert find_etcd() == on_path
    bundled = make_executable(tmp_path / "package" / "bin" / "etcd")
    assert find_etcd() == bundled
    chosen = make_executable(tmp_path / "chosen")
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(chosen))
    assert find_etcd() == chosen


def test_no_executable_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match="set TORCHELASTIC_ETCD_BINARY_PATH, or put etcd on PATH"):
        EtcdServer().start()


def test_a_variable_that_names_no_file_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", "/no/etcd")
    with pytest.raises(FileNotFoundError, match="TORCHELASTIC_ETCD_BINARY_PATH names '/no/etcd'"):
        find_etcd()


def test_a_server_that_was_not_started_has_no_port_and_can_be_stopped() -> None:
    server = EtcdServer()
    assert (server.get_host(), server.get_port(), server.get_endpoint()) == ("localhost", -1, "localhost:-1")
    server.stop()


def test_a_free_port_is_held_until_it_is_needed() -> None:
    with find_free_port() as one, find_free_port() as other:
        assert one.getsockname()[1] != other.getsockname()[1]
