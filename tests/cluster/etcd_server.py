"""etcd servers for tests of the etcd backends: a cluster that consists of etcd alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster import packages
from tests.cluster.build import binaries
from tests.cluster.cleanup import take_down
from tests.cluster.errors import ClusterError
from tests.cluster.etcd import LOOPBACK, PORTS, Certificates, etcd_url, start_etcd
from tests.cluster.processes import kill_all, tagged
from tests.cluster.state import ETCD, Record, create, load, save


@dataclass(frozen=True)
class EtcdServer:
    """A running etcd; stopped and started again it serves the same data at the same place."""

    name: str
    program: Path
    v2: bool
    address: str = LOOPBACK
    certificates: Certificates | None = None

    @property
    def _record(self) -> Record:
        record = load(self.name)
        if record is None:
            raise ClusterError(f"etcd server {self.name} has been taken down")
        return record

    @property
    def host(self) -> str:
        """The host name or address of the client endpoint."""
        return self.address

    @property
    def port(self) -> int:
        """The port of the client endpoint."""
        return self._record.ports["etcd-client"]

    @property
    def endpoint(self) -> str:
        """The client endpoint as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The client endpoint as a URL."""
        return etcd_url(self._record, self.address, tls=self.certificates is not None)

    def start(self) -> None:
        """Start it and wait until it serves."""
        record = self._record
        process = start_etcd(self.program, record, v2=self.v2, address=self.address, certificates=self.certificates)
        save(replace(record.with_process(process), ready=True))

    def stop(self) -> None:
        """Kill it, as a lost machine does; what was written stays."""
        record = self._record
        kill_all(lambda: tagged(record.tags), what=f"etcd server {self.name}")
        save(record.without_processes(["etcd"]))


@contextmanager
def etcd_server(
    name: str, *, v2: bool, address: str = LOOPBACK, certificates: Certificates | None = None
) -> Iterator[EtcdServer]:
    """A running etcd server, gone with its data at the end. Only Debian's old one serves the v2 API.

    Pods reach it at an address of this machine that is not the loopback one. With certificates it speaks TLS only.
    """
    if v2:
        packages.ensure(packages.ETCD_V2_PACKAGES)
        program = packages.ETCD_V2_PACKAGES["etcd-server"]
    else:
        program = binaries() / "etcd"
    record = create(name, level=ETCD, ports=PORTS, owned=True)
    server = EtcdServer(name=name, program=program, v2=v2, address=address, certificates=certificates)
    try:
        server.start()
        yield server
    finally:
        take_down(record)
