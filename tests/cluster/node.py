"""One node: a kubelet with a containerd of its own, and every directory, socket and address that the two need.

This module only says how a node is configured and started; the order of things is in `full`.
"""

from __future__ import annotations

import json
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import network, pki
from tests.cluster.cgroups import create_group, group_name
from tests.cluster.commands import run
from tests.cluster.control_plane import Files, write_user
from tests.cluster.errors import ClusterError
from tests.cluster.host import network_name
from tests.cluster.images import archived_image
from tests.cluster.processes import NODE_TAG, Started, start, wait_until
from tests.cluster.state import Record

PAUSE_IMAGE = "elasticjob/pause:1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
DNS_DOMAIN = "cluster.local"
_CNI_PROGRAMS = "/usr/lib/cni"
_READY_SECONDS = 120.0
_IMPORT_SECONDS = 300.0
# The kernel's limit for the path of a Unix socket, without the closing zero byte.
_SOCKET_PATH_LIMIT = 107


@dataclass(frozen=True)
class Node:
    """A node of a cluster; `index` counts from 1."""

    record: Record
    name: str
    index: int

    @property
    def directory(self) -> Path:
        """Everything of this node on disk."""
        return self.record.directory / self.name

    @property
    def address(self) -> str:
        """The node's own address."""
        return network.node_address(self.index)

    @property
    def subnet(self) -> str:
        """The addresses of its pods."""
        return network.pod_subnet(self.index)

    @property
    def port(self) -> int:
        """The port on which the API server reaches the kubelet."""
        return self.record.ports[f"kubelet-{self.index}"]

    @property
    def tags(self) -> dict[str, str]:
        """The environment settings that mark this node's processes."""
        return {**self.record.tags, NODE_TAG: self.name}

    @property
    def components(self) -> tuple[str, str]:
        """The names of its processes in the record."""
        return f"containerd-{self.name}", f"kubelet-{self.name}"

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.directory / "containerd.sock"

    def write_files(self) -> None:
        """Write certificates and configuration of both programs."""
        if len(str(self.socket)) > _SOCKET_PATH_LIMIT:
            raise ClusterError(
                f"socket path {self.socket}: {len(str(self.socket))} bytes, the limit is {_SOCKET_PATH_LIMIT}"
            )
        self.directory.mkdir()
        (self.directory / "cni").mkdir()
        authority = pki.Pair.read(Files(self.record.directory).pki, "ca")
        server = pki.issue(authority, common_name=f"system:node:{self.name}", hosts=[self.name, self.address])
        server.write(self.directory, "kubelet")
        self._write_kubeconfig()
        # An own, empty one keeps the machine's search domains out of the pods' name resolution.
        (self.directory / "resolv.conf").write_text("")
        (self.directory / "kubelet.json").write_text(json.dumps(self.kubelet_configuration(), indent=1))
        (self.directory / "containerd.toml").write_text(self.containerd_configuration())
        conf = network.cni_configuration(
            name=network_name(self.record.name, self.name), index=self.index, data=self.directory / "cni-addresses"
        )
        (self.directory / "cni" / "10-pods.conflist").write_text(conf)

    def _write_kubeconfig(self) -> None:
        write_user(
            self.record,
            user=f"system:node:{self.name}",
            groups=["system:nodes"],
            path=self.directory / "kubeconfig",
        )

    def kubelet_configuration(self) -> dict[str, object]:
        """The kubelet's configuration file."""
        authority = str(Files(self.record.directory).authority)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": self.port,
            "healthzPort": 0,
            "tlsCertFile": str(self.directory / "kubelet.crt"),
            "tlsPrivateKeyFile": str(self.directory / "kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "podLogsDir": str(self.directory / "pod-logs"),
            "resolvConf": str(self.directory / "resolv.conf"),
            "volumePluginDir": str(self.directory / "volume-plugins"),
            "clusterDNS": [DNS_SERVICE_ADDRESS],
            "clusterDomain": DNS_DOMAIN,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{group_name(self.record.name, self.name)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            # Leases are renewed at a quarter of this, so a lost node is noticed soon.
            "nodeLeaseDurationSeconds": 12,
            "nodeStatusUpdateFrequency": "4s",
            # The disk is the developer's own: that it is nearly full is no reason to evict test pods.
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }

    def containerd_configuration(self) -> str:
        """The containerd configuration file."""
        # A string of JSON is a string of TOML.
        paths = {name: json.dumps(str(self.directory / name)) for name in ("containerd", "state", "runc", "cni")}
        return f"""version = 2
root = {paths["containerd"]}
state = {paths["state"]}
oom_score = 0

[grpc]
address = {json.dumps(str(self.socket))}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
stream_server_address = "127.0.0.1"
stream_server_port = "0"
netns_mounts_under_state_dir = true
# Raising a process's priority in an out-of-memory situation takes a capability that containers of CI often lack.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_CNI_PROGRAMS}"
conf_dir = {paths["cni"]}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
Root = {paths["runc"]}
"""

    def kubelet_command(self, programs: Path) -> list[str]:
        """The kubelet's command line."""
        return [
            str(programs / "kubelet"),
            f"--config={self.directory / 'kubelet.json'}",
            f"--kubeconfig={self.directory / 'kubeconfig'}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'kubelet-pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]

    def start_containerd(self) -> Started:
        """Start containerd and wait until it answers."""
        component = self.components[0]
        program = shutil.which("containerd") or "containerd"
        command = [program, "--config", str(self.directory / "containerd.toml")]
        process = start(component, command, log=self.record.log(component), tags=self.tags)
        wait_until(self._listens, what=f"{component} to listen", timeout=_READY_SECONDS, watched=[process])
        # The socket takes connections from before the plugins are loaded; this answers when they are.
        self._ctr("version", timeout=_READY_SECONDS)
        return process

    def _listens(self) -> bool:
        # That the path exists says nothing: the socket of a killed containerd stays.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def start_kubelet(self, programs: Path) -> Started:
        """Start the kubelet; that its Node object gets Ready shows that it works."""
        create_group(group_name(self.record.name, self.name))
        component = self.components[1]
        return start(component, self.kubelet_command(programs), log=self.record.log(component), tags=self.tags)

    def import_image(self, archive: Path) -> None:
        """Import an image archive into this node's containerd, unless it has just this content already."""
        image = archived_image(archive)
        if image is None or image not in self.images().items():
            self._ctr("images", "import", str(archive), timeout=_IMPORT_SECONDS)

    def images(self) -> dict[str, str]:
        """The images that this node has: name to digest."""
        rows = self._ctr("images", "list", timeout=30).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def _ctr(self, *args: str, timeout: float) -> str:
        return run(["ctr", "--address", self.socket, "--namespace", "k8s.io", *args], timeout=timeout)
