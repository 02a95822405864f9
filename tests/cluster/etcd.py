"""etcd servers: the one under the control plane, and those that tests of the etcd backends talk to.

Data is thrown away with the cluster, so nothing is synced to disk. A server with certificates speaks TLS only, and only
to clients that show a certificate of the same authority.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import pki
from tests.cluster.processes import Started, start, wait_until
from tests.cluster.state import Record

PORTS = ("etcd-client", "etcd-peer")
LOOPBACK = "127.0.0.1"
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Certificates:
    """The authority of a server with TLS, and what it signed, all in PEM, in one directory."""

    directory: Path

    @classmethod
    def issue(cls, directory: Path, *, host: str) -> Certificates:
        """Make an authority, a certificate for a server at this host, and one for a client."""
        # Its name is none of those that it signs: a certificate whose issuer is its subject counts as self-signed.
        authority = pki.create_authority("etcd")
        (directory / "ca.crt").write_bytes(authority.certificate)
        pki.issue(authority, common_name="server", hosts=[host]).write(directory, "server")
        pki.issue(authority, common_name="client").write(directory, "client")
        return cls(directory)

    @property
    def authority(self) -> Path:
        """By which both sides know each other."""
        return self.directory / "ca.crt"

    def of(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of `server` or `client`."""
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    @property
    def client_context(self) -> ssl.SSLContext:
        """What a client of the server connects with."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(*self.of("client"))
        return context


def etcd_url(record: Record, address: str = LOOPBACK, *, tls: bool = False) -> str:
    """Where clients find it."""
    return f"http{'s' if tls else ''}://{address}:{record.ports['etcd-client']}"


def etcd_command(
    program: Path, record: Record, *, v2: bool, address: str = LOOPBACK, certificates: Certificates | None = None
) -> list[str]:
    """The command line; only etcd 3.4 and older can serve the v2 API."""
    peer = f"http://{LOOPBACK}:{record.ports['etcd-peer']}"
    client = etcd_url(record, address, tls=certificates is not None)
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
    if certificates is not None:
        certificate, key = certificates.of("server")
        command += [
            f"--cert-file={certificate}",
            f"--key-file={key}",
            f"--trusted-ca-file={certificates.authority}",
            "--client-cert-auth",
        ]
    return [*command, "--enable-v2"] if v2 else command


def start_etcd(
    program: Path,
    record: Record,
    *,
    v2: bool = False,
    address: str = LOOPBACK,
    certificates: Certificates | None = None,
) -> Started:
    """Start it, for clients at an address of this machine, and wait until it serves."""
    command = etcd_command(program, record, v2=v2, address=address, certificates=certificates)
    process = start("etcd", command, log=record.log("etcd"), tags=record.tags)
    url = etcd_url(record, address, tls=certificates is not None)
    context = None if certificates is None else certificates.client_context
    wait_until(lambda: _healthy(url, context), what="etcd to be healthy", timeout=_READY_SECONDS, watched=[process])
    return process


def _healthy(url: str, context: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2, context=context) as answer:
            return json.load(answer)["health"] == "true"  # type: ignore[no-any-return]
    except (urllib.error.URLError, OSError):
        return False
