"""What a test process does with clusters of other test processes, and what stays of its own when a test fails."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cluster as clusters
from tests.cluster import kept_logs
from tests.cluster.errors import ClusterError
from tests.cluster.processes import ProcessId, identify
from tests.cluster.state import FULL, Record, save

US = identify(os.getpid())
GONE = ProcessId(pid=os.getpid(), started=US.started + 1)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("ELASTICJOB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(clusters, "binaries", lambda: tmp_path)


@pytest.fixture
def other() -> Iterator[ProcessId]:
    """Another process, which runs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield identify(process.pid)
        process.kill()


def healthy(owner: ProcessId | None, name: str = "shared") -> Record:
    return save(Record(name=name, level=FULL, owner=owner, processes={"etcd": US}, ready=True))


def test_a_cluster_of_another_process_is_neither_used_nor_replaced(other: ProcessId) -> None:
    healthy(other)
    with pytest.raises(ClusterError, match="cluster shared belongs to another process"):
        clusters.up(level=FULL, name="shared", owned=True)
    assert clusters.find_full() is None
    assert clusters.Cluster("shared").record.healthy()


@pytest.mark.parametrize("owner", [US, None], ids=["own", "of nobody"])
def test_a_cluster_of_this_process_or_of_nobody_is_used(owner: ProcessId | None) -> None:
    healthy(owner)
    assert clusters.up(level=FULL, name="shared").name == "shared"
    assert clusters.find_full() == clusters.Cluster("shared")


def test_when_a_test_fails_the_logs_of_its_clusters_are_kept_and_the_end_of_the_dead_is_shown(other: ProcessId) -> None:
    healthy(other, "others")
    record = save(Record(name="own", level=FULL, owner=US, processes={"etcd": US, "kube-apiserver": GONE}))
    record.log("etcd").parent.mkdir()
    record.log("etcd").write_text("serving")
    record.log("kube-apiserver").write_text("fatal error")
    (record.directory / "operator.log").write_text("leading")
    told = kept_logs.report(kept_logs.own_records())
    first, *rest = told.splitlines()
    assert rest == ["--- kube-apiserver has ended:", "fatal error"]
    kept = Path(first.removeprefix("logs of cluster own: "))
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "etcd.log": "serving",
        "kube-apiserver.log": "fatal error",
        "operator.log": "leading",
    }


def test_the_newest_logs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "_KEPT", 2)
    kept = [kept_logs.keep(healthy(US, name)) for name in ("a", "b", "c")]
    assert [path.exists() for path in kept] == [False, True, True]
