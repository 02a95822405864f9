"""From a control plane to a cluster that runs pods: nodes, Services, names."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster import host, network, services
from tests.cluster.control_plane import Files
from tests.cluster.errors import ClusterError
from tests.cluster.image_sets import pause_image
from tests.cluster.kubectl import Kubectl
from tests.cluster.node import Node
from tests.cluster.processes import Started, wait_until
from tests.cluster.progress import step
from tests.cluster.state import Record, save

FULL_PORTS = services.PORTS
_NODE_SECONDS = 240.0


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster, as its record names them."""

    record: Record

    def all(self) -> list[Node]:
        """Every node, running or not."""
        return [Node(record=self.record, name=name, index=i + 1) for i, name in enumerate(self.record.nodes)]

    def get(self, name: str) -> Node:
        """The node with this name."""
        for node in self.all():
            if node.name == name:
                return node
        raise ClusterError(f"node {name!r}: cluster {self.record.name} has {', '.join(self.record.nodes) or 'none'}")

    def running(self) -> list[Node]:
        """The nodes that were not killed."""
        return [node for node in self.all() if set(node.components) <= set(self.record.processes)]

    def start(self, programs: Path, name: str) -> Record:
        """Start containerd and kubelet of a node; returns the record with both."""
        node = self.get(name)
        record = save(self.record.with_process(node.start_containerd()))
        node.import_image(pause_image(programs))
        return save(record.with_process(node.start_kubelet(programs)))

    def load_image(self, archive: Path) -> None:
        """Import an image archive into every running node."""
        nodes = self.running()
        with step(f"importing {archive.name}"), ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda node: node.import_image(archive), nodes))


def start_nodes(programs: Path, record: Record, *, node_count: int) -> Record:
    """Start all nodes and what pods need beside them; returns when every node is Ready."""
    names = [f"node-{index + 1}" for index in range(node_count)]
    record = save(replace(record, nodes=names, sysctls=host.read_sysctls(), new_paths=host.absent_paths()))
    network.create_device(node_count)
    for node in Nodes(record).all():
        node.write_files()
        record = Nodes(record).start(programs, node.name)
    kubectl = Kubectl(program=programs / "kubectl", kubeconfig=Files(record.directory).admin)
    kubectl.apply(*services.dns_objects(record))
    for name in names:
        wait_for_node(kubectl, name, record=record)
    # kube-proxy takes the addresses of its node from the Node object.
    record = save(record.with_process(services.start_proxy(programs, record, node=names[0])))
    return save(record.with_process(services.start_dns(programs, record)))


def node_lease(kubectl: Kubectl, node: str) -> str:
    """When the node last said that it lives; empty before it ever did."""
    where = ("-n", "kube-node-lease", "get", "lease", node, "--ignore-not-found")
    return kubectl(*where, "-o", "jsonpath={.spec.renewTime}").strip()


def node_ready(kubectl: Kubectl, node: str) -> bool:
    """Whether the node's Ready condition is True."""
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    return kubectl("get", "node", node, "--ignore-not-found", "-o", path).strip() == "True"


def wait_for_node(kubectl: Kubectl, node: str, *, record: Record, newer_than: str = "") -> None:
    """Wait until a node is Ready and has said that it lives after `newer_than` (its last lease before a restart)."""
    wait_until(
        lambda: node_lease(kubectl, node) > newer_than and node_ready(kubectl, node),
        what=f"node {node} to be Ready",
        timeout=_NODE_SECONDS,
        watched=_watched(record, f"kubelet-{node}", f"containerd-{node}"),
        poll=1.0,
    )


def _watched(record: Record, *components: str) -> Sequence[Started]:
    return [Started(component=name, identity=record.processes[name], log=record.log(name)) for name in components]
