"""Command lines and configuration files of the components."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomllib
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.cluster import control_plane, pki, services
from tests.cluster.control_plane import Options
from tests.cluster.errors import ClusterError
from tests.cluster.etcd import etcd_command
from tests.cluster.full import Nodes
from tests.cluster.network import cni_configuration
from tests.cluster.node import Node
from tests.cluster.state import FULL, Record
from tests.cluster.torch_packages import torch_requirements

PROGRAMS = Path("/programs")
PORTS = {name: 20000 + i for i, name in enumerate([*control_plane.PORTS, *services.PORTS, "kubelet-1", "kubelet-2"])}
RECORD = Record(name="a", level=FULL, ports=PORTS, nodes=["node-1", "node-2"])


def test_without_nodes_the_api_server_listens_on_the_loopback_address_only() -> None:
    command = control_plane.api_server_command(PROGRAMS, RECORD, Options())
    assert "--bind-address=127.0.0.1" in command
    assert "--endpoint-reconciler-type=none" in command
    assert not any(argument.startswith(("--audit", "--enable-admission-plugins")) for argument in command)


def test_with_nodes_pods_reach_the_api_server_at_its_address() -> None:
    command = control_plane.api_server_command(PROGRAMS, RECORD, Options(address="10.0.0.1"))
    assert "--bind-address=0.0.0.0" in command
    assert "--advertise-address=10.0.0.1" in command


def test_rbac_decides() -> None:
    assert "--authorization-mode=Node,RBAC" in control_plane.api_server_command(PROGRAMS, RECORD, Options())


def test_options_of_the_api_server() -> None:
    options = Options(audit=True, admission_plugins=["A", "B"])
    command = control_plane.api_server_command(PROGRAMS, RECORD, options)
    assert "--enable-admission-plugins=A,B" in command
    assert f"--audit-log-path={RECORD.directory / 'audit.log'}" in command
    assert json.loads(control_plane.audit_policy())["rules"] == [{"level": "Metadata"}]


@pytest.mark.parametrize("v2", [True, False])
def test_the_v2_api_is_asked_for_only_where_it_exists(v2: bool) -> None:
    assert ("--enable-v2" in etcd_command(PROGRAMS / "etcd", RECORD, v2=v2)) is v2


def test_nodes_share_nothing() -> None:
    first, second = Nodes(RECORD).all()
    for fact in ("directory", "address", "subnet", "port", "socket", "components"):
        assert getattr(first, fact) != getattr(second, fact)
    assert first.kubelet_configuration()["cgroupRoot"] == "/elasticjob.a.node-1"
    assert first.tags != second.tags


def test_only_nodes_with_both_programs_are_running() -> None:
    assert Nodes(RECORD).running() == []


def test_a_node_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ClusterError, match=r"node-9.*node-1, node-2"):
        Nodes(RECORD).get("node-9")


def test_containerd_keeps_all_its_files_in_the_node_directory() -> None:
    node = Node(record=RECORD, name="node-1", index=1)
    configuration = tomllib.loads(node.containerd_configuration())
    assert Path(configuration["root"]).parent == node.directory
    assert Path(configuration["state"]).parent == node.directory
    assert configuration["grpc"]["address"] == str(node.socket)


def test_pods_of_a_node_get_addresses_of_its_subnet() -> None:
    plugins = json.loads(cni_configuration(name="n", index=3, data=Path("/d")))["plugins"]
    assert plugins[0]["ipam"]["subnet"] == "10.244.3.0/24"


def test_the_dns_service_leads_to_coredns() -> None:
    service, endpoints, *_ = services.dns_objects(RECORD)
    assert {port["name"] for port in service["spec"]["ports"]} == {port["name"] for port in endpoints["ports"]}
    assert {port["port"] for port in endpoints["ports"]} == {PORTS["dns"]}
    assert f".:{PORTS['dns']} {{" in services.corefile(RECORD)


def test_a_certificate_names_user_groups_and_hosts() -> None:
    pair = pki.issue(pki.create_authority("x"), common_name="me", organizations=["g"], hosts=["h", "10.0.0.1"])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["g"]
    assert [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["me"]
    assert names.get_values_for_type(x509.DNSName) == ["h"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


def test_private_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    _, key = pki.create_authority("x").write(tmp_path, "ca")
    assert key.stat().st_mode & 0o077 == 0
    assert pki.Pair.read(tmp_path, "ca").key == key.read_bytes()


@pytest.mark.parametrize(("version", "numpy"), [("2.2.2", "numpy<2"), ("2.3.0", "numpy"), ("2.15.0", "numpy")])
def test_an_old_torch_gets_an_old_numpy(version: str, numpy: str) -> None:
    assert torch_requirements(version) == [f"torch=={version}", numpy, "scikit-learn"]
