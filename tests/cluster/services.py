"""What runs once beside the nodes: kube-proxy (Services) and CoreDNS (names), both on the machine itself.

All nodes share the machine's packet rules, so one kube-proxy is enough. CoreDNS is reached by pods through the usual
`kube-dns` Service, which has no selector but an EndpointSlice that points at the machine.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import Files, write_user
from tests.cluster.network import CONTROL_PLANE_ADDRESS, POD_RANGE
from tests.cluster.node import DNS_DOMAIN, DNS_SERVICE_ADDRESS
from tests.cluster.processes import Started, start, wait_until
from tests.cluster.state import Record

PORTS = ("proxy-health", "proxy-metrics", "dns", "dns-ready")
_READY_SECONDS = 120.0
_DNS_USER = "system:coredns"
_RBAC = "rbac.authorization.k8s.io"


def proxy_configuration(record: Record, *, node: str) -> dict[str, Any]:
    """The configuration file of kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(Files(record.directory).kubeconfig("kube-proxy"))},
        "clusterCIDR": POD_RANGE,
        "healthzBindAddress": f"127.0.0.1:{record.ports['proxy-health']}",
        "metricsBindAddress": f"127.0.0.1:{record.ports['proxy-metrics']}",
        "nodePortAddresses": ["primary"],
        # Zero leaves the kernel's connection tracking as it is: it is the machine's, not the cluster's.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def start_proxy(programs: Path, record: Record, *, node: str) -> Started:
    """Start kube-proxy and wait until it has written its rules once."""
    files = Files(record.directory)
    write_user(record, user="system:kube-proxy", groups=[], path=files.kubeconfig("kube-proxy"))
    configuration = record.directory / "kube-proxy.json"
    configuration.write_text(json.dumps(proxy_configuration(record, node=node), indent=1))
    command = [str(programs / "kube-proxy"), f"--config={configuration}"]
    process = start("kube-proxy", command, log=record.log("kube-proxy"), tags=record.tags)
    _wait(f"http://127.0.0.1:{record.ports['proxy-health']}/healthz", process)
    return process


def corefile(record: Record) -> str:
    """The configuration of CoreDNS: it knows the cluster's names and no others."""
    return f""".:{record.ports["dns"]} {{
    bind {CONTROL_PLANE_ADDRESS}
    errors
    ready 127.0.0.1:{record.ports["dns-ready"]}
    kubernetes {DNS_DOMAIN} in-addr.arpa {{
        kubeconfig {Files(record.directory).kubeconfig("coredns")}
        ttl 1
    }}
    cache 1
}}
"""


def dns_objects(record: Record) -> list[dict[str, Any]]:
    """The Service that pods ask, where it leads, and what CoreDNS may read."""
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    protocols = {"dns": "UDP", "dns-tcp": "TCP"}
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": DNS_SERVICE_ADDRESS,
                "ports": [{"name": name, "port": 53, "protocol": kind} for name, kind in protocols.items()],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": [
                {"name": name, "port": record.ports["dns"], "protocol": kind} for name, kind in protocols.items()
            ],
            "endpoints": [{"addresses": [CONTROL_PLANE_ADDRESS], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _DNS_USER},
            "rules": rules,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _DNS_USER},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _DNS_USER},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": _DNS_USER}],
        },
    ]


def start_dns(programs: Path, record: Record) -> Started:
    """Start CoreDNS and wait until it has read the cluster's Services."""
    write_user(record, user=_DNS_USER, groups=[], path=Files(record.directory).kubeconfig("coredns"))
    configuration = record.directory / "Corefile"
    configuration.write_text(corefile(record))
    command = [str(programs / "coredns"), "-conf", str(configuration)]
    process = start("coredns", command, log=record.log("coredns"), tags=record.tags)
    _wait(f"http://127.0.0.1:{record.ports['dns-ready']}/ready", process)
    return process


def _wait(url: str, process: Started) -> None:
    wait_until(
        lambda: _answers(url), what=f"{process.component} to be ready", timeout=_READY_SECONDS, watched=[process]
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
