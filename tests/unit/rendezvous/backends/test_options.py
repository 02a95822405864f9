"""Options of backends: what is read, and that a refusal names option, value and limit."""

from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous.backends.etcd_v2_keys import connect
from elasticjob.rendezvous.backends.options import EtcdOptions, bounded_int, etcd_options
from elasticjob.rendezvous.parameters import RendezvousParameters


def parameters(endpoint: str = "host", **options: Any) -> RendezvousParameters:
    return RendezvousParameters("etcd", endpoint, "run", 1, 1, **options)


def test_an_endpoint_alone_is_enough() -> None:
    assert etcd_options(parameters()) == EtcdOptions(host="host", port=2379, protocol="http", read_timeout=60)


def test_options_are_read_from_text_as_a_command_line_gives_them() -> None:
    options = etcd_options(parameters("host:1", protocol=" hTTps", read_timeout=" 10 "))
    assert (options.url, options.read_timeout) == ("https://host:1", 10)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("10.0.0.9", "http://10.0.0.9:2379"),
        ("[fd00::1]:1234", "http://[fd00::1]:1234"),
        ("[fd00::1]", "http://[fd00::1]:2379"),
        ("fd00::1", "http://[fd00::1]:2379"),
        ("::1", "http://[::1]:2379"),
        ("  host:1  ", "http://host:1"),
    ],
)
def test_urls_have_brackets_around_ipv6_and_the_default_port(endpoint: str, url: str) -> None:
    assert etcd_options(parameters(endpoint)).url == url


def test_the_v2_client_gets_brackets_as_well() -> None:
    assert connect(etcd_options(parameters("fd00::1"))).base_uri == "http://[fd00::1]:2379"


@pytest.mark.parametrize("endpoint", ["host:", "host:70000", "host:12ab", "http://host:2379"])
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        etcd_options(parameters(endpoint))


@pytest.mark.parametrize("value", ["0", "-10", 0, "ten", "1.5", 3601, True, None])
def test_a_time_out_out_of_bounds_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=rf"read_timeout must be a whole number from 1 to 3600, not {value!r}"):
        etcd_options(parameters(read_timeout=value))


def test_the_least_number_can_be_chosen() -> None:
    assert bounded_int(parameters(n="0"), "n", 5, maximum=9, minimum=0) == 0
    with pytest.raises(ValueError, match="n must be a whole number from 0 to 9, not -1"):
        bounded_int(parameters(n=-1), "n", 5, maximum=9, minimum=0)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="protocol must be one of http, https, not 'ftp'"):
        etcd_options(parameters(protocol="ftp"))


@pytest.mark.parametrize("key", ["ssl_cert", "ssl_cert_key", "ca_cert"])
def test_a_file_that_does_not_exist_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} must be the path of an existing file, not '/no/file'"):
        etcd_options(parameters(**{key: "/no/file"}))


def test_certificates_are_taken(tmp_path: Path) -> None:
    paths = {key: str(tmp_path / key) for key in ("ssl_cert", "ssl_cert_key", "ca_cert")}
    for path in paths.values():
        Path(path).touch()
    options = etcd_options(parameters(**paths))
    assert (options.ssl_cert, options.ssl_cert_key, options.ca_cert) == tuple(paths.values())


def test_a_key_without_its_certificate_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    with pytest.raises(ValueError, match=r"ssl_cert_key .* without ssl_cert"):
        etcd_options(parameters(ssl_cert_key=str(key)))
