"""A namespace of one test, seen through kubectl alone, as a user sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.kubectl import Kubectl

Object = dict[str, Any]
_POLL_SECONDS = 0.25
_SHOWN_CHARACTERS = 6000


class Space:
    """What a test does in its namespace. Every wait has a deadline and says, when it fails, what was to be seen."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self.namespace = namespace
        self._kubectl = kubectl

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """Run kubectl in this namespace."""
        return self._kubectl("-n", self.namespace, *args, input=input)

    def get(self, *args: str) -> Object:
        """Read one object."""
        found: Object = json.loads(self.kubectl("get", *args, "-o", "json"))
        return found

    def apply(self, *objects: Object) -> None:
        """Create or change objects in this namespace."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", input=json.dumps(items))

    def status(self, job: str) -> Object:
        """Status of a job, empty at first."""
        found: Object = self.get("elasticjob", job).get("status", {})
        return found

    def pods(self, job: str) -> Sequence[Object]:
        """The pods of a job that exist, by name."""
        items: list[Object] = self.get("pods", "-l", f"elasticjob.dev/job-name={job}")["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def pod_uids(self, job: str) -> dict[str, str]:
        """UID of each pod that is not being deleted."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.pods(job)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def logs(self, pod: str) -> str:
        """What the worker container of a pod has printed; empty before it started."""
        try:
            return self.kubectl("logs", pod, "-c", "worker")
        except ClusterError:
            return ""

    def all_logs(self, job: str) -> str:
        """What all pods of a job have printed that still exist."""
        return "".join(self.logs(pod["metadata"]["name"]) for pod in self.pods(job))

    def children(self) -> set[str]:
        """Everything in the namespace that an operator may have made."""
        names = self.kubectl("get", "pods,services,configmaps,secrets,leases,elasticjobs", "-o", "name").split()
        # Every namespace has this one.
        return set(names) - {"configmap/kube-root-ca.crt"}

    def wait_status(self, job: str, what: str, reached: Callable[[Object], bool], *, seconds: float) -> Object:
        """Wait until the status of a job is as wanted, and return it."""
        found: list[Object] = []

        def seen() -> bool:
            found[:] = [self.status(job)]
            return reached(found[0])

        self.wait(what, seen, seconds=seconds, job=job)
        return found[0]

    def wait_phase(self, job: str, phase: str, *, seconds: float) -> Object:
        """Wait until a job is in this phase."""
        return self.wait_status(job, f"phase {phase}", lambda status: status.get("phase") == phase, seconds=seconds)

    def wait_training(self, job: str, *, nodes: int, newer_than: int = 0, seconds: float) -> Object:
        """Wait until a round newer than the given one is formed with so many nodes."""
        return self.wait_status(
            job,
            f"a round newer than {newer_than} with {nodes} nodes",
            lambda status: round_of(status) > newer_than and is_formed(status) and len(ranks(status)) == nodes,
            seconds=seconds,
        )

    def wait(self, what: str, reached: Callable[[], bool], *, seconds: float, job: str | None = None) -> None:
        """Poll until something is so."""
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {seconds:.0f} s\n{self._seen(job)}")
            time.sleep(_POLL_SECONDS)

    def _seen(self, job: str | None) -> str:
        commands = [("get", "pods", "-o", "wide"), ("get", "events", "--sort-by=.metadata.creationTimestamp")]
        if job is not None:
            commands.insert(0, ("describe", "elasticjob", job))
        shown = [f"$ kubectl {' '.join(one)}\n{self._text(*one)[-_SHOWN_CHARACTERS:]}" for one in commands]
        return "\n".join(shown) + (f"\nlogs:\n{self.all_logs(job)[-_SHOWN_CHARACTERS:]}" if job is not None else "")

    def _text(self, *args: str) -> str:
        try:
            return self.kubectl(*args)
        except ClusterError as error:
            return str(error)


def round_of(status: Object) -> int:
    """Number of the newest formed round; 0 before the first."""
    return int(status.get("rendezvous", {}).get("round", 0))


def is_formed(status: Object) -> bool:
    """Whether the newest round is formed and training runs."""
    return bool(status.get("rendezvous", {}).get("state") == "Formed")


def ranks(status: Object) -> dict[int, str]:
    """The pod of each rank of the newest formed round."""
    return {
        node["rank"]: node["pod"]
        for node in status.get("nodes", [])
        if node.get("rank") is not None and node.get("round") == round_of(status)
    }


def messages(status: Object) -> str:
    """All that the conditions say."""
    return "\n".join(f"{one.get('reason')}: {one.get('message')}" for one in status.get("conditions", []))
