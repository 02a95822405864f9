"""Addresses, the pods' network and what has to be taken away again.

The machine gets one device that carries an address for the control plane and one for each node. Pods are joined to the
machine by point-to-point links, so all their traffic, also between two pods of one node, is routed by the machine and
passes the rules of kube-proxy. Pod subnets are fixed: one full cluster at a time on a machine.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.commands import run

DEVICE = "elasticjob0"
CONTROL_PLANE_ADDRESS = "10.89.0.1"
POD_RANGE = "10.244.0.0/16"
MAX_NODES = 50
_TIMEOUT = 30.0
_TABLES = ("filter", "nat", "mangle", "raw")
_TOOLS = ("iptables", "ip6tables")
_OUR_CHAIN = re.compile(r"(KUBE|CNI)-")


def node_address(index: int) -> str:
    """The address of the node with this index, counted from 1."""
    return f"10.89.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """The addresses of the pods on the node with this index."""
    return f"10.244.{index}.0/24"


def cni_configuration(*, name: str, index: int, data: Path) -> str:
    """The configuration by which containerd connects a pod of this node."""
    ipam = {
        "type": "host-local",
        "subnet": pod_subnet(index),
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(data),
    }
    plugins: list[dict[str, Any]] = [
        {"type": "ptp", "ipMasq": False, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": name, "plugins": plugins}, indent=1)


def create_device(node_count: int) -> None:
    """Make the device with the addresses of control plane and nodes."""
    run(["ip", "link", "add", DEVICE, "type", "bridge"], timeout=_TIMEOUT)
    for address in (CONTROL_PLANE_ADDRESS, *(node_address(index + 1) for index in range(node_count))):
        run(["ip", "address", "add", f"{address}/24", "dev", DEVICE], timeout=_TIMEOUT)
    run(["ip", "link", "set", DEVICE, "up"], timeout=_TIMEOUT)


def device_exists() -> bool:
    """Whether the device is there."""
    return (Path("/sys/class/net") / DEVICE).exists()


def remove_device() -> None:
    """Remove the device, if it is there."""
    if device_exists():
        run(["ip", "link", "delete", DEVICE], timeout=_TIMEOUT)


def pod_links(routes: str, subnet: str) -> list[str]:
    """The devices through which `ip -json route` reaches pods of this subnet."""
    network = ipaddress.ip_network(subnet)
    found = []
    for route in json.loads(routes):
        destination = route["dst"]
        if destination != "default" and "dev" in route and route["dev"].startswith("veth"):
            target = ipaddress.ip_network(destination)
            if target.version == network.version and target.subnet_of(network):  # type: ignore[arg-type]
                found.append(route["dev"])
    return found


def cut_pods_off(subnet: str = POD_RANGE) -> None:
    """Remove the links of the pods in this subnet: nothing they send gets out from then on, as on a lost machine."""
    for link in pod_links(run(["ip", "-json", "-4", "route"], timeout=_TIMEOUT), subnet):
        if (Path("/sys/class/net") / link).exists():
            run(["ip", "link", "delete", link], timeout=_TIMEOUT)


def removal_script(table: str, saved: str) -> str:
    """Input for `iptables-restore --noflush` that takes our chains and the rules that lead to them out of a table.

    `saved` is what `iptables-save -t <table>` prints. Empty when there is nothing of ours.
    """
    lines = saved.splitlines()
    chains = [line[1:].split()[0] for line in lines if line.startswith(":")]
    ours = [chain for chain in chains if _OUR_CHAIN.match(chain)]
    if not ours:
        return ""
    rules = [line for line in lines if line.startswith("-A ") and line.split()[1] not in ours]
    entries = [f"-D {rule[3:]}" for rule in rules if re.search(r" -[jg] (KUBE|CNI)-", rule)]
    script = [f"*{table}", *entries, *(f"-F {chain}" for chain in ours), *(f"-X {chain}" for chain in ours)]
    return "\n".join([*script, "COMMIT", ""])


def remove_rules() -> None:
    """Remove the packet rules of kube-proxy, kubelet and the CNI plugins."""
    for tool in _TOOLS:
        for table in _TABLES:
            script = removal_script(table, _saved(tool, table))
            if script:
                run([f"{tool}-restore", "--noflush", "-w", "10"], stdin=script, timeout=_TIMEOUT)


def foreign_chains() -> Sequence[str]:
    """Chains of a Kubernetes in the packet rules; called when no cluster of ours is there, they are another's."""
    saved = (_saved(tool, table) for tool in _TOOLS for table in _TABLES)
    return sorted({found[1:].split()[0] for text in saved for found in text.splitlines() if found[:6] == ":KUBE-"})


def _saved(tool: str, table: str) -> str:
    return run([f"{tool}-save", "-t", table], timeout=_TIMEOUT)
