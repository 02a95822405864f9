"""Marks that nodes leave on the machine outside of their own directories, and how they are put right again.

kubelet, containerd and the CNI plugins change kernel settings and use a few fixed paths. Settings are written down
before and restored after; paths that were not there before are removed after.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

_SYSCTLS = Path("/proc/sys")
CHANGED_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
FIXED_PATHS = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
_POD_LOG_LINKS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")


def read_sysctls(root: Path = _SYSCTLS) -> dict[str, str]:
    """The present values of the settings that get changed."""
    return {name: (root / name).read_text().strip() for name in CHANGED_SYSCTLS if (root / name).exists()}


def restore_sysctls(values: Mapping[str, str], root: Path = _SYSCTLS) -> None:
    """Set what differs back."""
    for name, value in values.items():
        if (root / name).read_text().strip() != value:
            (root / name).write_text(value)


def absent_paths() -> list[str]:
    """The fixed paths that are not there now."""
    return [path for path in FIXED_PATHS if not Path(path).exists()]


def remove_paths(paths: Sequence[str]) -> None:
    """Remove fixed paths that were not there before."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def remove_traces(cluster: str, directory: Path) -> None:
    """Remove what kubelet and CNI wrote for this cluster below fixed paths that were there before."""
    for link in _POD_LOG_LINKS.glob("*.log"):
        if link.is_symlink() and directory in link.readlink().parents:
            link.unlink()
    for result in _CNI_RESULTS.glob(f"{network_name(cluster, '')}*"):
        result.unlink()


def network_name(cluster: str, node: str) -> str:
    """The name of a node's pod network; the CNI library puts it into file names."""
    return f"elasticjob.{cluster}.{node}"
