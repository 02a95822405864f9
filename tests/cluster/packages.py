"""Debian packages that the cluster needs; only what is missing gets installed.

On a machine with systemd, Debian starts containerd and etcd as services on installation. They do no harm: the cluster
runs its own instances with own directories, sockets and ports. They are kept from starting all the same while these
packages are installed, so that nothing runs afterwards that did not run before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.locks import exclusive
from tests.cluster.progress import step

# Each package with a file that shows that it is there.
NODE_PACKAGES = {
    "containerd": Path("/usr/bin/containerd"),
    "runc": Path("/usr/sbin/runc"),
    "containernetworking-plugins": Path("/usr/lib/cni/ptp"),
    "iptables": Path("/usr/sbin/iptables"),
    "iproute2": Path("/bin/ip"),
    "conntrack": Path("/usr/sbin/conntrack"),
}
IMAGE_PACKAGES = {"mmdebstrap": Path("/usr/bin/mmdebstrap")}
ETCD_V2_PACKAGES = {"etcd-server": Path("/usr/bin/etcd")}
PROMETHEUS_PACKAGES = {"prometheus": Path("/usr/bin/prometheus")}
_TIMEOUT = 600.0


def missing(packages: dict[str, Path]) -> list[str]:
    """The packages of which no file is there."""
    return [name for name, shown_by in packages.items() if not shown_by.exists()]


def ensure(packages: dict[str, Path]) -> None:
    """Install what is missing of these packages."""
    if not missing(packages):
        return
    with exclusive("packages", timeout=_TIMEOUT, waiting_for="installation of Debian packages"):
        names = missing(packages)
        if names:
            _install(names)


def _install(names: Iterable[str]) -> None:
    wanted = " ".join(names)
    if os.getuid() != 0:
        raise ClusterError(f"Debian packages are missing and only root can install them: apt-get install {wanted}")
    if shutil.which("apt-get") is None:
        raise ClusterError(f"this machine has no apt-get: install the equivalents of Debian's {wanted}")
    with step(f"installing {wanted}"), _no_service_starts() as environment:
        run(["apt-get", "update"], timeout=_TIMEOUT)
        run(["apt-get", "install", "-y", "--no-install-recommends", *names], timeout=_TIMEOUT, env=environment)


@contextmanager
def _no_service_starts() -> Iterator[dict[str, str]]:
    # Debian's maintainer scripts ask this program, when there is one, whether they may start a service; 101 is "no".
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        with tempfile.TemporaryDirectory() as home:
            yield {"DEBIAN_FRONTEND": "noninteractive", "HOME": home}
    finally:
        if ours:
            policy.unlink()
