"""What is written down about a cluster, so that another process can use it and take it down.

A cluster is a directory `<clusters>/<name>` with a `cluster.json` in it. The directory exists from before the first
process starts until after the last one is gone. The record is replaced as a whole by a rename, never edited in place.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.locks import exclusive
from tests.cluster.paths import clusters_dir
from tests.cluster.processes import CLUSTER_TAG, ProcessId, Started, identify

CONTROL_PLANE = "control-plane"
FULL = "full"
ETCD = "etcd"
# Below the range from which the kernel and Kubernetes (node ports) take ports: only a fixed choice can collide.
PORT_RANGE = range(20000, 30000)
_FORMAT = 1
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_FILE = "cluster.json"


@dataclass(frozen=True)
class Record:
    """A cluster as written down. `owner` is the process with which an ephemeral cluster of a test run ends."""

    name: str
    level: str
    owner: ProcessId | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, ProcessId] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    # Kernel settings and paths as they were before, for putting them back.
    sysctls: Mapping[str, str] = field(default_factory=dict)
    new_paths: Sequence[str] = ()
    ready: bool = False

    @property
    def directory(self) -> Path:
        """Where everything of this cluster is."""
        return cluster_directory(self.name)

    @property
    def tags(self) -> dict[str, str]:
        """The environment settings that mark this cluster's processes."""
        return {CLUSTER_TAG: str(self.directory)}

    def log(self, component: str) -> Path:
        """The log file of a component."""
        return self.directory / "logs" / f"{component}.log"

    def with_process(self, started: Started) -> Record:
        """The record with one more process."""
        return replace(self, processes={**self.processes, started.component: started.identity})

    def without_processes(self, components: Iterable[str]) -> Record:
        """The record without these processes, which were ended on purpose."""
        gone = set(components)
        kept = {name: identity for name, identity in self.processes.items() if name not in gone}
        return replace(self, processes=kept)

    def orphaned(self) -> bool:
        """Whether the process that this cluster belongs to is gone."""
        return self.owner is not None and not self.owner.alive()

    def is_anothers(self) -> bool:
        """Whether this cluster belongs to a process that runs and is not this one."""
        return self.owner is not None and self.owner.pid != os.getpid() and self.owner.alive()

    def healthy(self) -> bool:
        """Whether it became ready and every process that was written down still runs."""
        return self.ready and all(process.alive() for process in self.processes.values())


def check_name(name: str) -> None:
    """Names end up in paths, cgroups and host names."""
    if not _NAME.fullmatch(name):
        raise ClusterError(f"cluster name {name!r}: must be 1 to 32 characters of a-z, 0-9 and '-', not at the ends")


def cluster_directory(name: str) -> Path:
    """The directory of the cluster with this name, whether it exists or not."""
    return clusters_dir() / name


def to_json(record: Record) -> str:
    """A record as text."""
    return json.dumps({"format": _FORMAT, **asdict(record)}, indent=1)


def from_json(text: str) -> Record:
    """The record in a text that `to_json` made."""
    data: dict[str, Any] = json.loads(text)
    found = data.pop("format")
    if found != _FORMAT:
        raise ClusterError(f"cluster record: format {found} is not {_FORMAT}: made by another version")
    owner = data.pop("owner")
    processes = data.pop("processes")
    return Record(
        **data,
        owner=ProcessId(**owner) if owner else None,
        processes={name: ProcessId(**identity) for name, identity in processes.items()},
    )


def save(record: Record) -> Record:
    """Write the record down; returns it for chaining."""
    record.directory.mkdir(mode=0o755, exist_ok=True)
    scratch = record.directory / f"{_FILE}.part"
    scratch.write_text(to_json(record))
    scratch.replace(record.directory / _FILE)
    return record


def load(name: str) -> Record | None:
    """The record of a cluster, or None when there is none."""
    try:
        return from_json((cluster_directory(name) / _FILE).read_text())
    except FileNotFoundError:
        return None


def all_records() -> list[Record]:
    """Every cluster of this user, half-made ones too."""
    found = (load(path.parent.name) for path in sorted(clusters_dir().glob(f"*/{_FILE}")))
    return [record for record in found if record is not None]


def create(name: str, *, level: str, ports: Iterable[str], owned: bool) -> Record:
    """Write down a new cluster with free ports; no other cluster gets the same ones."""
    check_name(name)
    with exclusive("records", timeout=60, waiting_for="choice of ports"):
        taken = {port for record in all_records() for port in record.ports.values()}
        record = Record(
            name=name,
            level=level,
            owner=identify(os.getpid()) if owned else None,
            ports=choose_ports(ports, taken=taken),
        )
        return save(record)


def choose_ports(names: Iterable[str], *, taken: set[int]) -> dict[str, int]:
    """A free port for each name, none of the taken ones."""
    candidates = [port for port in PORT_RANGE if port not in taken]
    random.shuffle(candidates)
    free = (port for port in candidates if _is_free(port))
    try:
        return {name: next(free) for name in names}
    except StopIteration:
        raise ClusterError(f"no free port in {PORT_RANGE.start}..{PORT_RANGE.stop - 1}") from None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def forget(record: Record) -> None:
    """Remove the cluster's directory, the record with it."""
    shutil.rmtree(record.directory)
