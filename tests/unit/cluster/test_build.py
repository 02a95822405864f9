"""What decides that the executables must be built again, and what they are told about themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.build import (
    PROGRAMS,
    SOURCES,
    find_go,
    link_flags,
    minimum_go,
    module_version,
    outdated_builds,
    peer_directory,
    source_key,
)
from tests.cluster.errors import ClusterError
from tests.cluster.paths import BINARIES_SOURCE

GO_MOD = """module example
go 1.26.0
require (
\tgithub.com/other/k8s.io/kubernetes v9.9.9
\thelm.sh/helm/v4 v4.3.2
\tk8s.io/kubernetes v1.37.2
)
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    copy = tmp_path / "binaries"
    shutil.copytree(BINARIES_SOURCE, copy)
    return copy


def test_the_same_sources_have_the_same_key(sources: Path) -> None:
    assert source_key(sources) == source_key()


@pytest.mark.parametrize("name", SOURCES)
def test_a_change_of_any_source_changes_the_key(sources: Path, name: str) -> None:
    with (sources / name).open("a") as content:
        content.write("\n")
    assert source_key(sources) != source_key()


def test_builds_of_older_sources_are_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_CACHE", str(tmp_path))
    present, old = [f"binaries-{source_key()}", peer_directory().name], ["binaries-1", "training-operator-1"]
    for name in (*present, *old, "torch-2.6.0"):
        (tmp_path / name).mkdir()
    assert [path.name for path in outdated_builds()] == old


def test_every_program_has_an_entry_in_the_executable() -> None:
    main = (BINARIES_SOURCE / "main.go").read_text()
    assert [name for name in PROGRAMS if f'"{name}":' not in main] == []


def test_a_module_version_is_that_of_exactly_this_module() -> None:
    assert module_version(GO_MOD, "k8s.io/kubernetes") == "v1.37.2"


def test_a_module_that_is_not_required_is_named_in_the_error() -> None:
    with pytest.raises(ClusterError, match=r"k8s\.io/absent"):
        module_version(GO_MOD, "k8s.io/absent")


def test_an_old_go_is_refused_with_the_version_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert minimum_go(GO_MOD) == (1, 26)
    with pytest.raises(ClusterError, match=r"go1\.19\.8.*Go 1\.26 or newer"):
        find_go(minimum_go(GO_MOD))
    assert find_go((1, 19)) == go


def test_the_programs_report_the_versions_of_their_modules() -> None:
    flags = link_flags(GO_MOD).split()
    assert "k8s.io/component-base/version.gitVersion=v1.37.2" in flags
    assert "k8s.io/component-base/version.gitMinor=37" in flags
    assert "helm.sh/helm/v4/internal/version.version=v4.3.2" in flags
