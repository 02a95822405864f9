"""Watches one ElasticJob: what changes in its status and what its rank 0 prints, with a deadline on every wait."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.kubectl import Kubectl
from tests.demo.output import say, show

_POLL_SECONDS = 1.0
_LINES = re.compile(r"^round \d+ rank 0 |^test accuracy ")

Status = dict[str, Any]


class Training:
    """An ElasticJob in a namespace, as somebody sees it who can only use kubectl."""

    def __init__(self, kubectl: Kubectl, *, namespace: str, job: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._job = job
        self._seen_state = ""
        self._seen_lines: dict[str, int] = {}
        self.lines: list[str] = []

    def status(self) -> Status:
        """The job's status; empty before the operator wrote one."""
        found: Status = self._kubectl.json("-n", self._namespace, "get", "elasticjob", self._job).get("status", {})
        return found

    def wait(self, what: str, reached: Callable[[Status], bool], *, seconds: float) -> Status:
        """Poll until the status is as wanted, and print progress meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            self._report(status)
            if reached(status):
                return status
            if status.get("phase") == "Failed":
                raise ClusterError(f"the job failed while waiting for {what}: {failure_of(status)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {seconds:.0f} s; {failure_of(status)}")
            time.sleep(_POLL_SECONDS)

    def rank_zero_pod(self) -> str:
        """Name of the pod that has rank 0 in the newest round."""
        status = self.status()
        index = status.get("rendezvous", {}).get("rankZero")
        for node in status.get("nodes", []):
            if node["index"] == index:
                return str(node["pod"])
        raise ClusterError(f"no node has rank 0: {summary(status)}")

    def pods(self) -> Sequence[str]:
        """Names of the job's pods that exist now."""
        selector = f"elasticjob.dev/job-name={self._job}"
        names = self._kubectl("-n", self._namespace, "get", "pods", "-l", selector, "-o", "name")
        return [name.removeprefix("pod/") for name in names.split()]

    def _report(self, status: Status) -> None:
        state = summary(status)
        if state != self._seen_state:
            self._seen_state = state
            say(state)
        for pod in self.pods():
            self._report_lines(pod)

    def _report_lines(self, pod: str) -> None:
        try:
            text = self._kubectl("-n", self._namespace, "logs", pod, "-c", "worker")
        except ClusterError:
            return  # not started yet, or gone since it was listed
        lines = text.splitlines()
        for line in lines[self._seen_lines.get(pod, 0) :]:
            if _LINES.match(line):
                self.lines.append(line)
                show(f"{pod}: {line}")
        self._seen_lines[pod] = len(lines)


def round_of(status: Status) -> int:
    """Number of the newest formed round; 0 before the first."""
    return int(status.get("rendezvous", {}).get("round", 0))


def is_training(status: Status) -> bool:
    """Whether a round is formed and not about to be replaced."""
    return round_of(status) > 0 and status.get("rendezvous", {}).get("state") == "Formed"


def summary(status: Status) -> str:
    """One line about the job: how far it is, and what each node does."""
    nodes = ", ".join(_node(node, round_of(status)) for node in status.get("nodes", []))
    number, state = round_of(status), status.get("rendezvous", {}).get("state")
    newest = f"round {number} ({state})" if number else "no round yet"
    return f"{status.get('phase') or 'not seen by the operator yet'}, {newest}: {nodes or 'no nodes yet'}"


def _node(node: dict[str, Any], number: int) -> str:
    rank = f" as rank {node['rank']}" if node.get("round") == number and "rank" in node else ""
    return f"{node.get('pod') or node['name']} {node['state']}{rank}"


def failure_of(status: Status) -> str:
    """What the conditions say about why a job does not get on."""
    texts = [
        f"{one['type']}={one['status']} ({one.get('reason')}: {one.get('message')})"
        for one in status.get("conditions", [])
    ]
    return f"{summary(status)}; conditions: " + ("; ".join(texts) or "none")
