"""The advertised address is one that peers can reach."""

import ipaddress
import socket

import pytest

from elasticjob.rendezvous.address import free_port, local_address


@pytest.mark.parametrize("variable", ["ELASTICJOB_POD_IP", "POD_IP"])
def test_the_address_of_the_pod_is_taken(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "fd00::7")
    assert local_address() == "fd00::7"


def test_an_address_is_found_without_a_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a name was looked up")

    for name in ("getfqdn", "gethostbyname", "gethostbyaddr", "getaddrinfo"):
        monkeypatch.setattr(socket, name, fail)
    address = local_address()
    assert address == socket.gethostname() or ipaddress.ip_address(address).version in (4, 6)


def test_a_host_without_a_way_outwards_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError("network is unreachable")

    monkeypatch.setattr(socket, "socket", refuse)
    assert local_address() == socket.gethostname()


def test_a_free_port_can_be_bound() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass


def test_a_free_port_is_found_on_hosts_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert 0 < free_port() < 65536
