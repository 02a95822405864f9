"""One cgroup per node, in every hierarchy of this machine (cgroup v1).

Each kubelet takes what it finds below its cgroup root for its own and kills what it does not know, so two on one
machine need a root each. The same root tells which processes are a node's containers: nothing else runs below it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.processes import wait_until

HIERARCHIES = Path("/sys/fs/cgroup")
# A new cpuset is empty, and no process can join it then.
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
_UNIFIED = "unified"


def group_name(cluster: str, node: str) -> str:
    """The node's cgroup root. Names of clusters and nodes hold no dots, so no two pairs give the same name."""
    return f"elasticjob.{cluster}.{node}"


def require_v1(hierarchies: Path = HIERARCHIES) -> None:
    """Say so when this machine's cgroups are of the other kind."""
    if not (hierarchies / "cpuset" / "cpuset.cpus").exists():
        raise ClusterError(
            f"{hierarchies}: no cgroup v1 hierarchies: nodes of the full level are written for cgroup v1"
        )


def create_group(name: str, hierarchies: Path = HIERARCHIES) -> None:
    """Make the group in each hierarchy."""
    for hierarchy in _hierarchies(hierarchies):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for setting in _CPUSET_FILES:
            if (hierarchy / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def _hierarchies(hierarchies: Path) -> list[Path]:
    # cpu and cpuacct may be links to one joint hierarchy.
    found = {path.resolve() for path in hierarchies.iterdir() if path.is_dir() and path.name != _UNIFIED}
    return sorted(found)


def groups(cluster: str, node: str = "*", hierarchies: Path = HIERARCHIES) -> list[Path]:
    """The groups of a cluster (or of one of its nodes) in all hierarchies."""
    return sorted(hierarchies.glob(f"*/{group_name(cluster, node)}"))


def pids_in(tops: list[Path]) -> set[int]:
    """The processes in these groups and all groups below them."""
    found: set[int] = set()
    for group in _with_children(tops):
        # A group may go away while it is looked at; its processes are gone then.
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return found


def remove_groups(tops: list[Path], *, timeout: float = 30.0) -> None:
    """Remove these groups, innermost first; the kernel refuses for a moment after the last process has ended."""

    def removed() -> bool:
        for group in reversed(list(_with_children(tops))):
            with contextlib.suppress(OSError):
                group.rmdir()
        return not any(top.exists() for top in tops)

    wait_until(removed, what=f"removal of cgroups {[str(top) for top in tops]}", timeout=timeout)


def _with_children(tops: list[Path]) -> Iterator[Path]:
    for top in tops:
        if top.is_dir():
            yield top
            with contextlib.suppress(OSError):
                yield from _with_children(sorted(path for path in top.iterdir() if path.is_dir()))
