"""The jobs of the end-to-end tests. All of their pods pass the Pod Security Standard "restricted"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

FOREVER = """
import os, time
with open(os.environ["ELASTICJOB_ROUND_FILE"]) as file:
    assert file.read().strip() == os.environ["ELASTICJOB_ROUND"]
print("round", os.environ["ELASTICJOB_ROUND"], "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
while True:
    time.sleep(1)
"""
"""A training that never ends."""


def launched(script: str) -> Sequence[str]:
    """A Python script under the launcher: no torch anywhere."""
    return ["python3", "-m", "elasticjob.rendezvous.launch", "--", "python3", "-u", "-c", script]


def job(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    replicas: int = 2,
    minimum: int = 1,
    maximum: int = 3,
    max_restarts: int = 3,
    pull_policy: str = "Never",
    **pod: Any,
) -> Object:
    """An ElasticJob whose worker runs a command; `pod` adds fields to the pod's spec."""
    worker = {
        "name": "worker",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": list(command),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "minReplicas": minimum,
            "maxReplicas": maximum,
            # However slow the machine is: the first round has all nodes.
            "waitForReplicasSeconds": 120,
            "rendezvous": {"lastCallTimeoutSeconds": 5},
            "restartPolicy": {"maxRestarts": max_restarts},
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [worker],
                    **pod,
                }
            },
        },
    }
