"""The peer of the operator's benchmarks: the PyTorchJob controller of github.com/kubeflow/training-operator.

It is built from its published Go module, with the versions of all libraries that the module itself asks for, once per
machine and only when a benchmark wants it. Its CustomResourceDefinition comes from the same module. A finished build is
a directory in the cache that appears by one rename, as for the cluster's own executables.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build import BUILD_TIMEOUT, PEER_SOURCE, compile_package, find_go, minimum_go, peer_directory
from tests.cluster.commands import run
from tests.cluster.locks import exclusive
from tests.cluster.progress import say

MODULE = "github.com/kubeflow/training-operator"
DEFINITION = "kubeflow.org_pytorchjobs.yaml"


@dataclass(frozen=True)
class TrainingOperator:
    """The built peer."""

    program: Path
    definition: Path


def training_operator() -> TrainingOperator:
    """The peer; builds it when this machine has none of these sources yet."""
    target = peer_directory()
    if not target.is_dir():
        with exclusive("build-peer", timeout=BUILD_TIMEOUT, waiting_for="build of the training-operator"):
            if not target.is_dir():
                _build(target)
    return TrainingOperator(program=target / "training-operator", definition=target / DEFINITION)


def _build(target: Path) -> None:
    go = find_go(minimum_go((PEER_SOURCE / "go.mod").read_text()))
    say(f"building the training-operator with {go}; this takes 2 to 6 minutes, once per machine")
    scratch = target.with_name(f"{target.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    compile_package(go, source=PEER_SOURCE, output=scratch / "training-operator", flags="-s -w")
    module = run([go, "list", "-m", "-f", "{{.Dir}}", MODULE], timeout=300, cwd=PEER_SOURCE).strip()
    shutil.copyfile(Path(module) / "manifests" / "base" / "crds" / DEFINITION, scratch / DEFINITION)
    scratch.rename(target)
