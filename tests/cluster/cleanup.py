"""Taking a cluster down, however far it got and whoever started it.

Nothing here trusts the record to be complete: processes are found by their tag and by their cgroup, mounts by their
place. So it works for a half-made cluster, and a second run after an interrupted one finishes the job. The cluster's
directory goes last, since the record in it is what shows that there is something left to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.cluster import cgroups, host, network
from tests.cluster.locks import exclusive
from tests.cluster.mounts import unmount_below
from tests.cluster.processes import kill_all, tagged
from tests.cluster.state import FULL, Record, all_records, forget

_PRUNE_SECONDS = 300.0
_SHIM_SOCKETS = Path("/run/containerd/s")


def take_down(record: Record) -> None:
    """End and remove everything of this cluster."""
    if record.level == FULL:
        _take_down_nodes(record)
    else:
        kill_all(lambda: tagged(record.tags), what=f"processes of cluster {record.name}")
    forget(record)


def _take_down_nodes(record: Record) -> None:
    groups = cgroups.groups(record.name)
    network.cut_pods_off()
    sockets = unix_sockets(Path("/proc/net/unix").read_text(), tagged(record.tags))

    def all_processes() -> Iterable[int]:
        return {*tagged(record.tags), *cgroups.pids_in(groups)}

    kill_all(all_processes, what=f"processes of cluster {record.name}")
    unmount_below(record.directory)
    cgroups.remove_groups(groups)
    network.cut_pods_off()
    network.remove_rules()
    network.remove_device()
    for socket in sockets:
        socket.unlink(missing_ok=True)
    host.remove_traces(record.name, record.directory)
    host.restore_sysctls(record.sysctls)
    host.remove_paths(record.new_paths)


def kill_node(record: Record, node: str, *, tags: dict[str, str], subnet: str) -> None:
    """Lose a machine: its pods' links first, so that no dying process can say goodbye, then every process."""
    network.cut_pods_off(subnet)
    groups = cgroups.groups(record.name, node)
    kill_all(lambda: {*tagged(tags), *cgroups.pids_in(groups)}, what=f"processes of node {node}")


def unix_sockets(table: str, pids: Iterable[int]) -> list[Path]:
    """The paths of the containerd shims' sockets that these processes hold; they outlive a killed process."""
    held = {inode for pid in pids for inode in _socket_inodes(pid)}
    rows = (line.split() for line in table.splitlines()[1:])
    paths = [Path(row[7]) for row in rows if len(row) > 7 and row[6] in held]
    return [path for path in paths if path.parent == _SHIM_SOCKETS]


def _socket_inodes(pid: int) -> Iterable[str]:
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except OSError:
        return


def prune() -> list[str]:
    """Take down what belongs to test runs that are gone; returns the names."""
    with exclusive("prune", timeout=_PRUNE_SECONDS, waiting_for="removal of dead clusters"):
        orphans = [record for record in all_records() if record.orphaned()]
        for record in orphans:
            take_down(record)
        return [record.name for record in orphans]
