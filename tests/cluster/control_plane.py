"""etcd, API server, controller-manager and scheduler.

Two shapes: *local* listens on the loopback address only and is enough for everything but running pods; the shape for
nodes listens on all addresses and is advertised to pods at `address`.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import pki
from tests.cluster.etcd import etcd_url
from tests.cluster.kubeconfig import client_certificate, kubeconfig, write_kubeconfig
from tests.cluster.processes import Started, start, wait_until
from tests.cluster.state import Record

PORTS = ("etcd-client", "etcd-peer", "api-server")
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
_READY_SECONDS = 120.0
# Enough for namespaces, service accounts, owner references and Services; none that judges pods by their nodes, which
# tests without nodes make up.
LOCAL_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)


@dataclass(frozen=True)
class Options:
    """What a control plane is like."""

    # Where pods find the API server; None: there are no pods, and it listens on the loopback address only.
    address: str | None = None
    controllers: bool = True
    admission_plugins: Sequence[str] = ()
    audit: bool = False


@dataclass(frozen=True)
class Files:
    """The files of a control plane, all below the cluster's directory."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.directory / "pki"

    @property
    def authority(self) -> Path:
        """The authority's certificate, which clients trust."""
        return self.pki / "ca.crt"

    @property
    def admin(self) -> Path:
        """The kubeconfig of a user who may do everything."""
        return self.directory / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for every request, when auditing is on."""
        return self.directory / "audit.log"

    def kubeconfig(self, component: str) -> Path:
        """The kubeconfig of a component."""
        return self.directory / f"{component}.kubeconfig"


def server_url(record: Record) -> str:
    """Where programs on this machine find the API server."""
    return f"https://127.0.0.1:{record.ports['api-server']}"


def write_credentials(record: Record, *, address: str | None) -> Files:
    """Make the authority, the certificates and the kubeconfigs of all components."""
    files = Files(record.directory)
    files.pki.mkdir(mode=0o700)
    authority = pki.create_authority("elasticjob-test")
    authority.write(files.pki, "ca")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"{ISSUER.partition('//')[2]}"]
    hosts = [*names, "localhost", "127.0.0.1", API_SERVICE_ADDRESS, *([address] if address else [])]
    pki.issue(authority, common_name="kube-apiserver", hosts=hosts).write(files.pki, "api-server")
    kubelet_client = pki.issue(authority, common_name="kube-apiserver-kubelet", organizations=["system:masters"])
    kubelet_client.write(files.pki, "kubelet-client")
    private, public = pki.create_service_account_key()
    pki.Pair(certificate=public, key=private).write(files.pki, "service-accounts")
    write_user(record, user="admin", groups=["system:masters"], path=files.admin)
    for component in ("kube-controller-manager", "kube-scheduler"):
        write_user(record, user=f"system:{component}", groups=[], path=files.kubeconfig(component))
    return files


def write_user(record: Record, *, user: str, groups: Sequence[str], path: Path) -> Path:
    """A kubeconfig of a user with a client certificate, signed by the cluster's authority."""
    authority = pki.Pair.read(Files(record.directory).pki, "ca")
    pair = pki.issue(authority, common_name=user, organizations=groups)
    content = kubeconfig(server=server_url(record), authority=authority.certificate, user=client_certificate(pair))
    return write_kubeconfig(path, content)


def api_server_command(programs: Path, record: Record, options: Options) -> list[str]:
    """The command line of the API server."""
    files = Files(record.directory)
    local = options.address is None
    command = [
        str(programs / "kube-apiserver"),
        f"--etcd-servers={etcd_url(record)}",
        f"--bind-address={'127.0.0.1' if local else '0.0.0.0'}",
        # Without pods the address is never used, but the server insists on one that is not a loopback address.
        f"--advertise-address={options.address or API_SERVICE_ADDRESS}",
        f"--endpoint-reconciler-type={'none' if local else 'lease'}",
        f"--secure-port={record.ports['api-server']}",
        f"--tls-cert-file={files.pki / 'api-server.crt'}",
        f"--tls-private-key-file={files.pki / 'api-server.key'}",
        f"--client-ca-file={files.authority}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={files.pki / 'service-accounts.crt'}",
        f"--service-account-signing-key-file={files.pki / 'service-accounts.key'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--kubelet-certificate-authority={files.authority}",
        f"--kubelet-client-certificate={files.pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={files.pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if options.admission_plugins:
        command.append(f"--enable-admission-plugins={','.join(options.admission_plugins)}")
    if options.audit:
        # Blocking: a request is in the log before its answer is sent, so a test that counts misses none.
        command += [
            f"--audit-policy-file={record.directory / 'audit-policy.json'}",
            f"--audit-log-path={files.audit_log}",
            "--audit-log-mode=blocking",
        ]
    return command


def audit_policy() -> str:
    """Log who asked for what, once per request, without contents."""
    return json.dumps(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
    )


def controller_manager_command(programs: Path, record: Record, *, controllers: Sequence[str]) -> list[str]:
    """The command line of the controller-manager; `controllers` as its own flag takes them ("*": all)."""
    files = Files(record.directory)
    return [
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={files.kubeconfig('kube-controller-manager')}",
        f"--controllers={','.join(controllers)}",
        f"--root-ca-file={files.authority}",
        f"--service-account-private-key-file={files.pki / 'service-accounts.key'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        # A lost node is noticed after 20 s instead of 50 s: nodes here renew their leases every 3 s (see `node`).
        "--node-monitor-grace-period=20s",
        "--node-monitor-period=2s",
    ]


def scheduler_command(programs: Path, record: Record) -> list[str]:
    """The command line of the scheduler."""
    return [
        str(programs / "kube-scheduler"),
        f"--kubeconfig={Files(record.directory).kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def start_api_server(programs: Path, record: Record, options: Options) -> Started:
    """Start the API server and wait until it says that it is ready."""
    (record.directory / "audit-policy.json").write_text(audit_policy())
    command = api_server_command(programs, record, options)
    process = start("kube-apiserver", command, log=record.log("kube-apiserver"), tags=record.tags)
    files = Files(record.directory)
    context = ssl.create_default_context(cafile=str(files.authority))
    context.load_cert_chain(files.pki / "kubelet-client.crt", files.pki / "kubelet-client.key")
    wait_until(
        lambda: _is_ready(f"{server_url(record)}/readyz", context),
        what="API server to be ready",
        timeout=_READY_SECONDS,
        watched=[process],
    )
    return process


def _is_ready(url: str, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start_controller_manager(programs: Path, record: Record, *, controllers: Sequence[str]) -> Started:
    """Start the controller-manager; what it does shows that it works."""
    command = controller_manager_command(programs, record, controllers=controllers)
    return start("kube-controller-manager", command, log=record.log("kube-controller-manager"), tags=record.tags)


def start_scheduler(programs: Path, record: Record) -> Started:
    """Start the scheduler."""
    command = scheduler_command(programs, record)
    return start("kube-scheduler", command, log=record.log("kube-scheduler"), tags=record.tags)
