"""The etcd backends over TLS with client certificates, against servers that demand them."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.etcd_server import find_free_port
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store
from tests.cluster.build import binaries
from tests.cluster.packages import ETCD_V2_PACKAGES, ensure
from tests.cluster.pki import create_authority, issue

pytestmark = pytest.mark.timeout(60, func_only=True)

Make = Callable[..., tuple[RendezvousBackend, Store]]


@contextmanager
def tls_server(program: Path, directory: Path, *flags: str) -> Iterator[int]:
    """An etcd that speaks TLS only and demands a client certificate."""
    with find_free_port() as client, find_free_port() as peer:
        port, peer_port = client.getsockname()[1], peer.getsockname()[1]
    url, peer_url = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    process = subprocess.Popen(
        [
            program,
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            f"--cert-file={directory / 'server.crt'}",
            f"--key-file={directory / 'server.key'}",
            f"--trusted-ca-file={directory / 'ca.crt'}",
            "--client-cert-auth",
            "--unsafe-no-fsync",
            *flags,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        # The same words in all versions: it serves from then on.
        assert any("serving client" in line for line in process.stderr)
        yield port
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(params=["etcd", "etcd-v2"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes backends for a TLS server."""
    authority = create_authority("etcd")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    issue(authority, common_name="server", hosts=["127.0.0.1"]).write(tmp_path, "server")
    issue(authority, common_name="client").write(tmp_path, "client")
    if request.param == "etcd":
        program, flags = binaries() / "etcd", []
    else:
        ensure(ETCD_V2_PACKAGES)
        program, flags = ETCD_V2_PACKAGES["etcd-server"], ["--enable-v2"]
    with tls_server(program, tmp_path, *flags) as port:

        def made(**options: Any) -> tuple[RendezvousBackend, Store]:
            name = str(request.param)
            endpoint = f"127.0.0.1:{port}"
            return create_backend(name, RendezvousParameters(name, endpoint, "run", 1, 1, read_timeout=5, **options))

        yield made


def certificates(directory: Path) -> dict[str, str]:
    return {
        "protocol": "https",
        "ca_cert": str(directory / "ca.crt"),
        "ssl_cert": str(directory / "client.crt"),
        "ssl_cert_key": str(directory / "client.key"),
    }


def test_state_and_store_work_with_a_client_certificate(make: Make, tmp_path: Path) -> None:
    backend, store = make(**certificates(tmp_path))
    result = backend.set_state(b"x")
    assert result is not None
    assert backend.get_state() == (b"x", result[1])
    store.set("a", "1")
    assert store.get("a") == b"1"


def test_a_certificate_with_its_key_in_one_file_works(make: Make, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "client.crt").read_bytes() + (tmp_path / "client.key").read_bytes())
    options = {"protocol": "https", "ca_cert": str(tmp_path / "ca.crt"), "ssl_cert": str(both)}
    assert make(**options)[0].get_state() is None


def test_plain_http_to_a_tls_server_is_an_error(make: Make) -> None:
    with pytest.raises(RendezvousConnectionError, match=r"http://127\.0\.0\.1:"):
        make()[0].get_state()


def test_a_client_without_certificate_is_an_error(make: Make, tmp_path: Path) -> None:
    with pytest.raises(RendezvousConnectionError, match=r"https://127\.0\.0\.1:"):
        make(protocol="https", ca_cert=str(tmp_path / "ca.crt"))[0].get_state()


def test_a_server_of_another_authority_is_not_trusted(make: Make, tmp_path: Path) -> None:
    (tmp_path / "other.crt").write_bytes(create_authority("other").certificate)
    options = {**certificates(tmp_path), "ca_cert": str(tmp_path / "other.crt")}
    with pytest.raises(RendezvousConnectionError, match="certificate"):
        make(**options)[0].get_state()
