"""The etcd backends over TLS with client certificates, against servers that demand them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import Store
from tests.cluster.etcd import LOOPBACK, Certificates
from tests.cluster.etcd_server import etcd_server
from tests.cluster.pki import create_authority

pytestmark = pytest.mark.timeout(60, func_only=True)

Make = Callable[..., tuple[RendezvousBackend, Store]]


@pytest.fixture(params=["etcd", "etcd-v2"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes backends for a TLS server."""
    certificates, name = Certificates.issue(tmp_path, host=LOOPBACK), str(request.param)
    is_v2 = name == "etcd-v2"
    with etcd_server(f"tls-{name}-{os.getpid()}", v2=is_v2, certificates=certificates) as server:

        def made(**options: Any) -> tuple[RendezvousBackend, Store]:
            params = RendezvousParameters(name, server.endpoint, "run", 1, 1, read_timeout=5, **options)
            return create_backend(name, params)

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
