"""Where the demo runs: the user's own cluster when an image is named for it, else a test cluster on this machine."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cluster import Cluster, up
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.image_sets import (
    PYTHON_IMAGE,
    operator_image,
    operator_image_name,
    python_image,
)
from tests.cluster.images import archived_image
from tests.cluster.kubectl import Helm, Kubectl
from tests.cluster.state import FULL
from tests.cluster.torch_packages import torch_site_packages
from tests.demo.digits import Machine, Variant
from tests.demo.output import say

_REACH_SECONDS = 20.0
EPOCHS = 25
PAUSE_SECONDS = 0.08


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user chose.

    Args:
        image: The operator's image in a registry that the nodes of the user's own cluster can pull from.
        worker_image: Image with torch and scikit-learn; None for the example's.
        storage_class: For the checkpoints, with ReadWriteMany; None for the default one.
        remove: Remove everything at the end.
    """

    image: str | None = None
    worker_image: str | None = None
    storage_class: str | None = None
    remove: bool = False


@dataclass(frozen=True, kw_only=True)
class Target:
    """A cluster and how to use it.

    Args:
        image_digest: Of an image that is made anew under the same name; empty for one that is published.
        test_cluster: None for the user's own.
    """

    name: str
    kubectl: Kubectl
    helm: Helm
    image: str
    pull_policy: str
    variant: Variant
    image_digest: str = ""
    test_cluster: Cluster | None = None


def find_target(options: Options) -> Target:
    """Find a Kubernetes, or make one."""
    if options.image:
        return _own_cluster(options, options.image)
    context = _own_context()
    if context is not None:
        say(
            f"to use your own cluster ({context}), name an image that its nodes can pull:"
            " make demo IMAGE=registry/elasticjob:tag"
        )
    return _test_cluster()


def _own_context() -> str | None:
    if shutil.which("kubectl") is None:
        return None
    try:
        return run(["kubectl", "config", "current-context"], timeout=_REACH_SECONDS).strip() or None
    except ClusterError:
        return None


def _own_cluster(options: Options, image: str) -> Target:
    kubectl, helm = _program("kubectl"), _program("helm")
    context = _own_context()
    if context is None:
        raise ClusterError("IMAGE is set, but kubectl has no current context: set KUBECONFIG, or leave IMAGE out")
    home = Path(tempfile.mkdtemp(prefix="elasticjob-demo-"))
    kubeconfig = home / "kubeconfig"
    # One file with the one context: nothing that happens elsewhere can make the demo change clusters in mid-course.
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(run([kubectl, "config", "view", "--raw", "--minify", "--flatten"], timeout=_REACH_SECONDS))
    target = Target(
        name=f"your cluster {context}",
        kubectl=Kubectl(program=kubectl, kubeconfig=kubeconfig),
        helm=Helm(program=helm, kubeconfig=kubeconfig, home=home),
        image=image,
        pull_policy="IfNotPresent",
        variant=Variant(
            image=options.worker_image, storage_class=options.storage_class, epochs=EPOCHS, pause=PAUSE_SECONDS
        ),
    )
    target.kubectl("version", "--request-timeout=10s", timeout=_REACH_SECONDS)
    return target


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ClusterError(f"{name} is not on PATH: the demo needs it to use your own cluster")
    return Path(found)


def _test_cluster() -> Target:
    cluster = up(level=FULL)
    cluster.load_image(python_image())
    archive = operator_image()
    cluster.load_image(archive)
    archived = archived_image(archive)
    checkpoints = cluster.directory / "demo-checkpoints"
    checkpoints.mkdir(exist_ok=True)
    checkpoints.chmod(0o777)
    return Target(
        name=f"test cluster {cluster.name}",
        kubectl=cluster.kubectl,
        helm=cluster.helm,
        image=operator_image_name(),
        pull_policy="Never",
        variant=Variant(
            image=PYTHON_IMAGE,
            pull_policy="Never",
            machine=Machine(torch=torch_site_packages(), checkpoints=checkpoints),
            epochs=EPOCHS,
            pause=PAUSE_SECONDS,
        ),
        image_digest=archived[1] if archived is not None else "",
        test_cluster=cluster,
    )
