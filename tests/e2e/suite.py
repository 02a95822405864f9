"""What the end-to-end tests share: one cluster, one installation of the chart, and how to use both."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.kubectl import Helm, Kubectl
from tests.demo.digits import Machine, Variant, digits_objects, machine_volume_names
from tests.demo.story import CHART, RELEASE, SYSTEM_NAMESPACE
from tests.e2e.space import Space

# The same as the demo's: two operators that both serve the whole cluster would fight.
NAMESPACE = SYSTEM_NAMESPACE
_SECONDS = 90


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The cluster with the operator in it.

    Args:
        operator_image: Name of the operator's image.
        image: Name of the workers' image: plain Python, without a trace of elasticjob.
        torch: Site-packages with torch and scikit-learn for that Python.
    """

    cluster: Cluster
    operator_image: str
    image: str
    torch: Path

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
            *(f"--set={setting}" for setting in ("logLevel=debug", *settings)),
            timeout=_SECONDS + 30,
        )

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
        epochs: int,
        pause: float = 0.0,
        command: Sequence[str] | None = None,
        max_restarts: int = 3,
    ) -> None:
        """Apply `examples/digits`; `command` replaces the training script."""
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
        spec = next(one for one in objects if one["kind"] == "ElasticJob")["spec"]
        spec["restartPolicy"] = {"maxRestarts": max_restarts}
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = 5
        if command is not None:
            agent = ["python3", "-m", "torch.distributed.run", "--no-python"]
            spec["template"]["spec"]["containers"][0] |= {"command": [*agent, *command], "args": []}
        self.kubectl.apply(*(one for one in objects if one["kind"] == "PersistentVolume"))
        space.apply(*(one for one in objects if one["kind"] != "PersistentVolume"))

    def forget_volumes(self, space: Space) -> None:
        """PersistentVolumes do not go with the namespace of a test."""
        self.kubectl("delete", "pv", *machine_volume_names(space.namespace), "--ignore-not-found", "--wait=false")


__all__ = ["CHART", "NAMESPACE", "RELEASE", "Suite"]
