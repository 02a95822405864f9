"""The example `examples/digits` as it is applied to a cluster: unchanged but for images, storage and duration.

A test cluster has neither an image with torch nor a storage class. There, directories of the machine take both places,
behind PersistentVolumes, so that the pods stay within the Pod Security Standard "restricted".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kubectl import Kubectl

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"
JOB = "digits"
_CHECKPOINTS_CLAIM = "digits-checkpoints"
_TORCH_CLAIM = "torch"
_TORCH_PATH = "/opt/torch"

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Directories of a test cluster's machine that stand in for an image with torch and for shared storage."""

    torch: Path
    checkpoints: Path


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What differs from the example.

    Args:
        image: Image of the worker; None for the example's own.
        pull_policy: imagePullPolicy of the worker; None for Kubernetes' default.
        storage_class: Of the checkpoints; None for the cluster's default.
        machine: Set on a test cluster.
    """

    image: str | None = None
    pull_policy: str | None = None
    storage_class: str | None = None
    machine: Machine | None = None
    epochs: int = 30
    pause: float = 0.0


def digits_objects(kubectl: Kubectl, variant: Variant, *, namespace: str) -> list[Object]:
    """All objects of the example, in the order in which they are to be applied."""
    objects: list[Object] = [one for one in yaml.safe_load_all(kubectl("kustomize", str(EXAMPLE))) if one]
    job = next(one for one in objects if one["kind"] == "ElasticJob")
    _adapt_worker(job["spec"]["template"]["spec"]["containers"][0], variant)
    claim = next(one for one in objects if one["kind"] == "PersistentVolumeClaim")
    if variant.storage_class is not None:
        claim["spec"]["storageClassName"] = variant.storage_class
    if variant.machine is not None:
        objects = [*_machine_volumes(job, variant.machine, namespace=namespace), *objects]
    return sorted(objects, key=lambda one: one["kind"] == "ElasticJob")


def machine_volume_names(namespace: str) -> Sequence[str]:
    """PersistentVolumes are cluster-wide: they do not go with the namespace."""
    return [f"{namespace}-{_CHECKPOINTS_CLAIM}", f"{namespace}-{_TORCH_CLAIM}"]


def _adapt_worker(worker: Object, variant: Variant) -> None:
    worker["args"] = ["--checkpoints=/checkpoints", f"--epochs={variant.epochs}", f"--pause={variant.pause}"]
    if variant.image is not None:
        worker["image"] = variant.image
    if variant.pull_policy is not None:
        worker["imagePullPolicy"] = variant.pull_policy


def _machine_volumes(job: Object, machine: Machine, *, namespace: str) -> list[Object]:
    pod = job["spec"]["template"]["spec"]
    worker = pod["containers"][0]
    # The operator puts its own directory in front of what the user sets here.
    worker["env"].append({"name": "PYTHONPATH", "value": _TORCH_PATH})
    worker["volumeMounts"].append({"name": "torch", "mountPath": _TORCH_PATH, "readOnly": True})
    pod["volumes"].append({"name": "torch", "persistentVolumeClaim": {"claimName": _TORCH_CLAIM, "readOnly": True}})
    checkpoints, torch = machine_volume_names(namespace)
    return [
        _volume(checkpoints, machine.checkpoints, namespace=namespace, claim=_CHECKPOINTS_CLAIM),
        _volume(torch, machine.torch, namespace=namespace, claim=_TORCH_CLAIM),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": _TORCH_CLAIM},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def _volume(name: str, directory: Path, *, namespace: str, claim: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(directory), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }
