"""The demo itself: install, train, kill rank 0, and see the training go on."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import down
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.locks import exclusive
from tests.demo.digits import JOB, digits_objects, machine_volume_names
from tests.demo.output import say, show
from tests.demo.targets import Target
from tests.demo.training import Training, is_training, round_of

CHART = Path(__file__).resolve().parents[2] / "charts" / "elasticjob"
RELEASE = "elasticjob"
SYSTEM_NAMESPACE = "elasticjob-system"
NAMESPACE = "elasticjob-demo"
_PLUGIN = Path(sys.executable).with_name("kubectl-elasticjob")
_PLUGIN_SECONDS = 60.0
_INSTALL_SECONDS = 180
_DELETE_SECONDS = 90.0
_START_SECONDS = 600.0  # a user's cluster may pull an image with torch first
_ROUND_SECONDS = 120.0
_FINISH_SECONDS = 300.0
_KILL_AFTER_EPOCHS = 5
_OTHERS_SECONDS = 3600.0


def tell(target: Target) -> None:
    """Run all steps. Raises ClusterError with what was seen when a step fails."""
    # End-to-end tests install the operator as well, and may run on the same test cluster.
    say(f"on {target.name}: install the operator, train on two nodes, kill the pod of rank 0, see training resume")
    waiting = exclusive("operator", timeout=_OTHERS_SECONDS, waiting_for="tests that install the operator")
    with waiting, _diagnosed(target):
        install(target)
        start_job(target)
        training = Training(target.kubectl, namespace=NAMESPACE, job=JOB)
        status = training.wait("the first round", is_training, seconds=_START_SECONDS)
        training.wait("training to begin", lambda _: len(training.lines) > _KILL_AFTER_EPOCHS, seconds=_START_SECONDS)
        kill_rank_zero(target, training, before=round_of(status))
        training.wait("the job to succeed", lambda one: one.get("phase") == "Succeeded", seconds=_FINISH_SECONDS)
        show_outcome(target, training)


def install(target: Target) -> None:
    """Install or upgrade the operator, and wait until it is ready."""
    say("installing the operator: helm upgrade --install")
    # Helm installs a definition but never changes one, so an upgrade has this one step of its own.
    definition = target.helm("show", "crds", str(CHART))
    target.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=definition)
    repository, _, tag = target.image.rpartition(":")
    target.helm(
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM_NAMESPACE, "--create-namespace"),
        *(f"--set=image.repository={repository}", f"--set-string=image.tag={tag}"),
        *(f"--set=image.pullPolicy={target.pull_policy}", "--wait", f"--timeout={_INSTALL_SECONDS}s"),
        # Without it, an operator of an earlier demo would stay although its image is another one now.
        *([f"--set-string=podAnnotations.image={target.image_digest}"] if target.image_digest else []),
        timeout=_INSTALL_SECONDS + 30,
    )
    show(target.kubectl("-n", SYSTEM_NAMESPACE, "get", "pods"))


def start_job(target: Target) -> None:
    """Apply examples/digits into a namespace that admits only restricted pods."""
    remove_job(target)
    say("applying the job: kubectl apply -k examples/digits")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    target.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    objects = digits_objects(target.kubectl, target.variant, namespace=NAMESPACE)
    namespaced = [one if _is_cluster_wide(one) else _placed(one) for one in objects]
    show(target.kubectl.apply(*namespaced))


def _is_cluster_wide(one: dict[str, object]) -> bool:
    return one["kind"] == "PersistentVolume"


def _placed(one: dict[str, object]) -> dict[str, object]:
    metadata = one["metadata"]
    assert isinstance(metadata, dict)
    return {**one, "metadata": {**metadata, "namespace": NAMESPACE}}


def kill_rank_zero(target: Target, training: Training, *, before: int) -> None:
    """Kill the pod that all others talk to, and wait until training goes on in a new round."""
    victim = training.rank_zero_pod()
    say(f"killing {victim}, which has rank 0 in round {before}")
    target.kubectl("-n", NAMESPACE, "delete", "pod", victim, "--grace-period=0", "--force")
    killed = time.monotonic()
    status = training.wait(
        "a new round after the kill",
        lambda one: is_training(one) and round_of(one) > before,
        seconds=_ROUND_SECONDS,
    )
    say(f"round {round_of(status)} formed {time.monotonic() - killed:.1f} s after the kill")
    # On a slow machine the survivor goes on alone first, and the replacement joins in yet another round.
    training.wait(
        "training to resume from the checkpoint",
        lambda _: any(resumed_round(line) > before for line in training.lines),
        seconds=_ROUND_SECONDS,
    )
    say("training has resumed from the checkpoint")


def resumed_round(line: str) -> int:
    """The round in which training resumed by this line of its log, else 0."""
    found = re.match(r"round (\d+) .*resumed from epoch", line)
    return int(found[1]) if found else 0


def show_outcome(target: Target, training: Training) -> None:
    """Show what a user sees of the finished job."""
    accuracy = [line for line in training.lines if line.startswith("test accuracy")]
    say(accuracy[-1] if accuracy else "the job succeeded")
    say("kubectl get elasticjobs")
    show(target.kubectl("-n", NAMESPACE, "get", "elasticjobs"))
    say(f"kubectl elasticjob status {JOB}")
    show(_plugin(target, "status", JOB))
    say(f"kubectl describe elasticjob {JOB}, its end")
    _, _, events = target.kubectl("-n", NAMESPACE, "describe", "elasticjob", JOB).partition("\nEvents:")
    show(f"Events:{events}")


def _plugin(target: Target, *args: str) -> str:
    """What `kubectl elasticjob` prints: kubectl finds the plugin on the PATH, and the plugin finds kubectl there."""
    path = os.pathsep.join((str(target.kubectl.program.parent), str(_PLUGIN.parent), os.environ["PATH"]))
    command = [str(target.kubectl.program), "elasticjob", *args, "-n", NAMESPACE]
    return run(command, timeout=_PLUGIN_SECONDS, env={"KUBECONFIG": str(target.kubectl.kubeconfig), "PATH": path})


def remove_job(target: Target) -> None:
    """Remove what an earlier demo left, so that this one starts from the beginning."""
    if target.kubectl.exists("namespace", NAMESPACE):
        say("removing the job of an earlier demo")
        target.kubectl("delete", "namespace", NAMESPACE, "--timeout=80s", timeout=_DELETE_SECONDS)
    if target.variant.machine is not None:
        # A volume whose claim is gone serves no other, whoever has deleted the namespace.
        target.kubectl("delete", "pv", *machine_volume_names(NAMESPACE), "--ignore-not-found")


def remove_all(target: Target) -> None:
    """Leave nothing behind."""
    say("removing everything that the demo made")
    if target.test_cluster is not None:
        down(target.test_cluster.name)
        return
    remove_job(target)
    target.helm("uninstall", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--ignore-not-found")
    target.kubectl("delete", "namespace", SYSTEM_NAMESPACE, "--ignore-not-found", timeout=_DELETE_SECONDS)


@contextmanager
def _diagnosed(target: Target) -> Iterator[None]:
    try:
        yield
    except ClusterError:
        for title, command in (
            ("pods of the job", ("-n", NAMESPACE, "get", "pods", "-o", "wide")),
            ("the job", ("-n", NAMESPACE, "describe", "elasticjob", JOB)),
            ("the operator", ("-n", SYSTEM_NAMESPACE, "logs", f"deployment/{RELEASE}", "--tail=40")),
        ):
            say(f"for a look at {title}: kubectl {' '.join(command)}")
            try:
                show(target.kubectl(*command))
            except ClusterError as error:
                show(str(error))
        raise
