"""What the end-to-end tests share: one cluster, one installation of the chart, and how to use both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.etcd import Certificates
from tests.cluster.kubectl import Helm, Kubectl
from tests.cluster.processes import wait_until
from tests.demo.digits import Machine, Variant, digits_objects, machine_volume_names
from tests.demo.story import CHART, RELEASE, SYSTEM_NAMESPACE
from tests.e2e.space import Object, Space

# The same as the demo's: two operators that both serve the whole cluster would fight.
NAMESPACE = SYSTEM_NAMESPACE
ETCD_SECRET = "etcd-client"
ETCD_DIRECTORY = "/etc/etcd-client"
_ETCD_VOLUME = (
    "extraVolumes[0].name=etcd-client",
    f"extraVolumes[0].secret.secretName={ETCD_SECRET}",
    "extraVolumeMounts[0].name=etcd-client",
    f"extraVolumeMounts[0].mountPath={ETCD_DIRECTORY}",
    "extraVolumeMounts[0].readOnly=true",
)
# Of the operator to be ready, by when it must be; costs nothing when it is sooner.
_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The cluster with the operator in it.

    Args:
        operator_image: Name of the operator's image.
        image: Name of the workers' image: plain Python, without a trace of elasticjob.
        torch: Site-packages with torch and scikit-learn for that Python.
        etcd: Certificates of an etcd with TLS; the operator has those of the client in a Secret, as
            `docs/operations.md` says.
    """

    cluster: Cluster
    operator_image: str
    image: str
    torch: Path
    etcd: Certificates

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as a user who may do everything."""
        return self.cluster.kubectl

    @property
    def helm(self) -> Helm:
        """Helm as a user who may do everything."""
        return self.cluster.helm

    def install(self, release: str, *settings: str) -> None:
        """Install or upgrade as `docs/operations.md` says, and wait until the operator is ready."""
        definition = self.helm("show", "crds", str(CHART))
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=definition)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self._provide_etcd_certificates()
        try:
            self._upgrade(release, *settings)
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self._seen(release)}") from error

    def _upgrade(self, release: str, *settings: str) -> None:
        repository, _, tag = self.operator_image.rpartition(":")
        self.helm(
            *(
                "upgrade",
                "--install",
                release,
                str(CHART),
                "--namespace",
                NAMESPACE,
                "--wait",
                f"--timeout={_SECONDS}s",
            ),
            *(f"--set=image.repository={repository}", f"--set-string=image.tag={tag}", "--set=image.pullPolicy=Never"),
            *(f"--set={setting}" for setting in ("logLevel=debug", *_ETCD_VOLUME, *settings)),
            timeout=_SECONDS + 30,
        )

    def _seen(self, release: str) -> str:
        """Why the operator does not get ready."""
        where = ("-n", NAMESPACE)
        log = (*where, "logs", f"deployment/{release}", "--tail=30")
        return "\n".join(self._text(*one) for one in ((*where, "get", "pods,events"), log, (*log, "--previous")))

    def _text(self, *args: str) -> str:
        try:
            return self.kubectl(*args)
        except ClusterError as error:
            return str(error)

    def _provide_etcd_certificates(self) -> None:
        certificate, key = (path.read_text() for path in self.etcd.of("client"))
        data = {"ca.crt": self.etcd.authority.read_text(), "tls.crt": certificate, "tls.key": key}
        metadata = {"name": ETCD_SECRET, "namespace": NAMESPACE}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})

    def uninstall(self, release: str) -> None:
        """Remove the operator."""
        self.helm("uninstall", release, "--namespace", NAMESPACE, "--wait", "--ignore-not-found", timeout=_SECONDS)

    @contextmanager
    def replaced_by(self, other: str) -> Iterator[Callable[[], None]]:
        """Without the operator, until what is handed out is called; puts back what was there at the end."""
        self.uninstall(RELEASE)
        try:
            yield lambda: self.install(other)
        finally:
            self.uninstall(other)
            self.install(RELEASE)

    def leader(self) -> str:
        """Name of the operator's pod that leads."""
        lease = self.kubectl.json("-n", NAMESPACE, "get", "lease", RELEASE)
        return str(lease["spec"]["holderIdentity"]).partition("_")[0]

    def leader_pod(self) -> Object:
        """The operator's pod that leads; waits for one while the last leader has left or is gone."""
        found: list[Object] = []

        def leads() -> bool:
            name = self.leader()
            text = name and self.kubectl("-n", NAMESPACE, "get", "pod", name, "--ignore-not-found", "-o", "json")
            found[:] = [json.loads(text)] if text.strip() else []
            return bool(found) and "deletionTimestamp" not in found[0]["metadata"]

        wait_until(leads, what="an operator to lead", timeout=_SECONDS, poll=0.25)
        return found[0]

    def delete_leader(self) -> None:
        """Delete the operator's pod that leads, without notice."""
        name = self.leader_pod()["metadata"]["name"]
        self.kubectl("-n", NAMESPACE, "delete", "pod", name, "--grace-period=0", "--force")

    def notes(self) -> str:
        """What Helm said after the installation."""
        return self.helm("get", "notes", RELEASE, "--namespace", NAMESPACE)

    def rendezvous_url(self) -> str:
        """Where the rendezvous listens: the Service's address is routed on the cluster's machine, too."""
        service = self.kubectl.json("-n", NAMESPACE, "get", "service", "elasticjob-rendezvous")["spec"]
        return f"https://{service['clusterIP']}:{service['ports'][0]['port']}"

    def apply_digits(
        self,
        space: Space,
        *,
        epochs: int = 1,
        pause: float = 0.0,
        command: Sequence[str] | None = None,
        script: str | None = None,
        max_restarts: int = 3,
        last_call: int = 120,
        worker: Mapping[str, Any] | None = None,
        **pod: Any,
    ) -> Path:
        """Apply `examples/digits`; returns where its checkpoints are on this machine.

        Args:
            command: What torchrun starts instead of the training script.
            script: What the training script holds instead.
            last_call: Seconds that survivors wait for a replacement; far more than it takes, so that the outcome does
                not depend on how fast the machine is.
            worker: Fields of the worker container.
            pod: Fields of the pod's spec.
        """
        checkpoints = Path(tempfile.mkdtemp(prefix=f"{space.namespace}-", dir=self.cluster.directory))
        checkpoints.chmod(0o777)
        variant = Variant(
            image=self.image,
            pull_policy="Never",
            machine=Machine(torch=self.torch, checkpoints=checkpoints),
            epochs=epochs,
            pause=pause,
        )
        objects = digits_objects(self.kubectl, variant, namespace=space.namespace)
        by_kind = {one["kind"]: one for one in objects}
        spec = by_kind["ElasticJob"]["spec"]
        spec["restartPolicy"] = {"maxRestarts": max_restarts}
        spec["waitForReplicasSeconds"] = 120
        spec["rendezvous"]["lastCallTimeoutSeconds"] = last_call
        spec["template"]["spec"] |= {"terminationGracePeriodSeconds": 5, **pod}
        container = spec["template"]["spec"]["containers"][0]
        container |= worker or {}
        if command is not None:
            agent = ["python3", "-m", "torch.distributed.run", "--no-python"]
            container |= {"command": [*agent, *command], "args": []}
        if script is not None:
            by_kind["ConfigMap"]["data"]["train.py"] = script
        self.kubectl.apply(*(one for one in objects if one["kind"] == "PersistentVolume"))
        space.apply(*(one for one in objects if one["kind"] != "PersistentVolume"))
        return checkpoints

    def forget_volumes(self, space: Space) -> None:
        """PersistentVolumes do not go with the namespace of a test."""
        self.kubectl("delete", "pv", *machine_volume_names(space.namespace), "--ignore-not-found", "--wait=false")


__all__ = ["CHART", "ETCD_DIRECTORY", "NAMESPACE", "RELEASE", "Suite"]
