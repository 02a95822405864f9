"""etcd servers: the one under the control plane, and those that tests of the etcd backends talk to.

Data is thrown away with the cluster, so nothing is synced to disk.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster.processes import Started, start, wait_until
from tests.cluster.state import Record

PORTS = ("etcd-client", "etcd-peer")
LOOPBACK = "127.0.0.1"
_READY_SECONDS = 60.0


def etcd_url(record: Record, address: str = LOOPBACK) -> str:
    """Where clients find it."""
    return f"http://{address}:{record.ports['etcd-client']}"


def etcd_command(program: Path, record: Record, *, v2: bool, address: str = LOOPBACK) -> list[str]:
    """The command line; only etcd 3.4 and older can serve the v2 API."""
    peer = f"http://{LOOPBACK}:{record.ports['etcd-peer']}"
    client = etcd_url(record, address)
    command = [
        str(program),
        f"--data-dir={record.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]
    return [*command, "--enable-v2"] if v2 else command


def start_etcd(program: Path, record: Record, *, v2: bool = False, address: str = LOOPBACK) -> Started:
    """Start it, for clients at an address of this machine, and wait until it serves."""
    command = etcd_command(program, record, v2=v2, address=address)
    process = start("etcd", command, log=record.log("etcd"), tags=record.tags)
    url = etcd_url(record, address)
    wait_until(lambda: _healthy(url), what="etcd to be healthy", timeout=_READY_SECONDS, watched=[process])
    return process


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return json.load(answer)["health"] == "true"  # type: ignore[no-any-return]
    except (urllib.error.URLError, OSError):
        return False
