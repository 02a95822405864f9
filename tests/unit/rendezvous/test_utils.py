"""Endpoints: an IPv6 address is never cut, and what cannot work is refused with its text."""

import pytest

from elasticjob.rendezvous.utils import parse_rendezvous_endpoint


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("[fd00::1]:2379", ("fd00::1", 2379)),
        ("[fd00::1]", ("fd00::1", 29400)),
        ("fd00::1", ("fd00::1", 29400)),
        ("2001:db8::8a2e", ("2001:db8::8a2e", 29400)),
        ("::1", ("::1", 29400)),
        ("[::1]:0", ("::1", 0)),
        ("fe80::1%eth0", ("fe80::1%eth0", 29400)),
        ("  host:1  ", ("host", 1)),
        ("host", ("host", 29400)),
        ("10.0.0.9", ("10.0.0.9", 29400)),
        ("demo-0.demo:65535", ("demo-0.demo", 65535)),
        ("my_etcd:2379", ("my_etcd", 2379)),
        ("[host]:1", ("host", 1)),
        ("", ("localhost", 29400)),
        ("  ", ("localhost", 29400)),
        (None, ("localhost", 29400)),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str | None, expected: tuple[str, int]) -> None:
    assert parse_rendezvous_endpoint(endpoint, default_port=29400) == expected


@pytest.mark.parametrize(
    "endpoint", ["host:", "host:70000", "host:65536", "host:12ab", "host:-1", "[::1]:", "[::1]:x", "host:١", "host:1 1"]
)
def test_a_port_that_cannot_be_is_refused(endpoint: str) -> None:
    with pytest.raises(
        ValueError, match=r"^The port number of the rendezvous endpoint '.*' must be an integer"
    ) as refused:
        parse_rendezvous_endpoint(endpoint, default_port=1)
    assert f"'{endpoint}'" in str(refused.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "~",
        "~:123",
        ":123",
        "host :123",
        "http://host:2379",
        "a:b:1",
        "[fd00::1",
        "fd00::1]:1",
        "[]",
        "[a b]:1",
        "fd00:::1",
    ],
)
def test_a_host_that_cannot_be_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"^The hostname of the rendezvous endpoint '.*' must be") as refused:
        parse_rendezvous_endpoint(endpoint, default_port=1)
    assert f"'{endpoint}'" in str(refused.value)
