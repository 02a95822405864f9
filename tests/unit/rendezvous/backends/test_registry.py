"""Backends are found by name, imported late, and say which package they miss."""

import importlib.metadata
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous import backends
from elasticjob.rendezvous.backends import backend_names, create_backend, get_backend_creator
from elasticjob.rendezvous.backends.extras import require
from elasticjob.rendezvous.parameters import RendezvousParameters

BUILT_IN = ["etcd", "etcd-v2", "kubernetes", "memory"]
PARAMETERS = RendezvousParameters("memory", "", "run", 1, 1)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


def test_the_built_in_backends_are_known() -> None:
    assert set(BUILT_IN) <= set(backend_names())


def test_the_built_in_backends_are_known_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    assert backend_names() == BUILT_IN
    assert create_backend("memory", PARAMETERS)[0].name == "memory"


def test_the_entry_points_of_the_distribution_are_the_built_in_ones() -> None:
    entries = importlib.metadata.entry_points(group=backends.ENTRY_POINT_GROUP)
    assert {entry.name: entry.load() for entry in entries} == {name: get_backend_creator(name) for name in BUILT_IN}


@pytest.fixture
def foreign_backend(monkeypatch: pytest.MonkeyPatch) -> str:
    module = types.ModuleType("foreign_backend")
    module.__dict__["create_backend"] = lambda params: ("backend", params.run_id)
    monkeypatch.setitem(sys.modules, "foreign_backend", module)
    entry = importlib.metadata.EntryPoint("foreign", "foreign_backend:create_backend", backends.ENTRY_POINT_GROUP)

    def entry_points(**wanted: Any) -> list[importlib.metadata.EntryPoint]:
        return [entry] if wanted.get("name", "foreign") == "foreign" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return "foreign"


def test_a_backend_of_another_distribution_is_found(foreign_backend: str) -> None:
    assert foreign_backend in backend_names()
    assert create_backend(foreign_backend, PARAMETERS) == ("backend", "run")  # type: ignore[comparison-overlap]


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="no rendezvous backend 'zookeeper'; known are etcd, etcd-v2, kubernetes, memory"
    ):
        create_backend("zookeeper", PARAMETERS)


def test_the_port_to_config_maps_is_imported_without_any_client_package() -> None:
    code = (
        "import sys; from elasticjob.rendezvous.backends import kubernetes, lease, get_backend_creator;"
        "get_backend_creator('kubernetes'); get_backend_creator('etcd'); get_backend_creator('etcd-v2');"
        "print([m for m in ('kubernetes', 'etcd', 'etcd3gw', 'requests', 'urllib3') if m in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize(
    ("backend", "module", "hint"),
    [
        ("etcd", "etcd3gw", "pip install 'elasticjob[etcd]'"),
        ("etcd-v2", "etcd", "pip install 'elasticjob[etcd]'"),
        ("kubernetes", "kubernetes", "pip install 'elasticjob[kubernetes]'"),
    ],
)
def test_a_missing_package_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backend: str, module: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as raised:
        create_backend(backend, PARAMETERS)
    assert f"'{module}'" in str(raised.value)
    assert hint in str(raised.value)


def test_what_a_package_itself_misses_is_not_blamed_on_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "half_installed.py").write_text("import a_package_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there") as raised:
        require("half_installed", needed_by="some backend", extra="some")
    assert "pip install" not in str(raised.value)
