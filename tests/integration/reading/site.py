"""A job on a real API server with a real operator process; the kubelet and the agents are played by the test.

The agents use the real client and real pod-bound tokens over real HTTP; only training is left out. The played kubelet
writes into the status of pods what a real one would.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elasticjob.operator.constants import LABEL_JOB_NAME, TOKEN_AUDIENCE
from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.errors import RendezvousError
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.cluster.cluster import Cluster

JOB = "digits"
NODES = ("node-a", "node-b")
IMAGE = "registry.example/digits:1"
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.3
"""What is looked at is mostly asked of kubectl, which takes a fifth of a second of a processor itself."""
CHILDREN = "pods,services,configmaps,poddisruptionbudgets"
AGENT_SECONDS = 5.0
"""So long does an agent that joins try to reach the operator."""


def eventually(check: Callable[[], bool], *, what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < ends, f"not within {seconds:g} seconds: {what}"
        time.sleep(_POLL_SECONDS)


@dataclass(kw_only=True)
class Agent:
    """Joins round after round, like torchrun, until it is told that it is over."""

    client: HostedRendezvousClient
    _thread: threading.Thread = field(init=False)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._take_part, daemon=True)

    def start(self) -> None:
        """Begin to join."""
        self._thread.start()

    def stop(self) -> None:
        """Join no more."""
        self._stopped.set()

    def await_end(self) -> None:
        """Wait until it has been told that the run is over, or has noticed that it is to stop."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "an agent does not end"

    def _take_part(self) -> None:
        try:
            while not self._stopped.is_set():
                self.client.join()
                while self.client.num_nodes_waiting() == 0 and not self.client.is_closed():
                    if self._stopped.wait(0.05):
                        return
        except RendezvousError:
            return
        finally:
            self.client.leave(LeaveOutcome.LEFT)


class ImpatientClient(HostedRendezvousClient):
    """Does not wait for an operator that has ended with its test."""

    @property
    def patience(self) -> float:
        """See base class."""
        return AGENT_SECONDS


@dataclass(kw_only=True)
class Site:
    """One namespace and its job."""

    cluster: Cluster
    namespace: str
    port: int
    directory: Path
    agents: dict[str, Agent] = field(default_factory=dict)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=input)

    def plugin(self, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `kubectl elasticjob` about the job."""
        program = self.cluster.kubectl.program.parent
        where = ["-n", self.namespace, "--kubeconfig", str(self.cluster.kubeconfig)]
        return subprocess.run(
            [sys.executable, "-m", "elasticjob.operator.plugin.main", command, JOB, *arguments, *where],
            env={**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def create(self, *, name: str = JOB, rendezvous: Mapping[str, Any] = MappingProxyType({}), **spec: Any) -> None:
        """Create the job, or another one beside it.

        On a machine that is busy otherwise no node is to be given up for silence, nor a last call to end before all
        that are to join have joined.
        """
        container = {"name": "worker", "image": IMAGE, "command": ["torchrun", "train.py"]}
        body = {
            "apiVersion": "elasticjob.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": name},
            "spec": {
                "template": {"spec": {"containers": [container]}},
                "rendezvous": {"keepAliveMaxAttempts": 12, "lastCallTimeoutSeconds": 300, **rendezvous},
                **spec,
            },
        }
        self.kubectl("create", "-f", "-", input=json.dumps(body))

    def change(self, **spec: Any) -> None:
        """Change the spec of the job."""
        self.kubectl("patch", "elasticjob", JOB, "--type=merge", "-p", json.dumps({"spec": spec}))

    def remove(self) -> None:
        """Delete the job and all that is left of it."""
        for agent in self.agents.values():
            agent.stop()
        self.kubectl("delete", "elasticjob", JOB, "--ignore-not-found")
        # The garbage collector would do it, once it has heard of the new kind of owner.
        self.kubectl("delete", CHILDREN, "--selector", LABEL_JOB_NAME, "--force", "--grace-period=0")
        eventually(lambda: not self._leftovers(), what="the children of the job are gone")
        for agent in self.agents.values():
            agent.await_end()
        self.agents.clear()

    def status(self) -> Mapping[str, Any]:
        """The status of the job."""
        job = json.loads(self.kubectl("get", "elasticjob", JOB, "-o", "json"))
        status: Mapping[str, Any] = job.get("status") or {}
        return status

    def await_event(self, reason: str) -> None:
        """Wait until an Event of this reason was written about the job."""
        uid = self.kubectl("get", "elasticjob", JOB, "-o", "jsonpath={.metadata.uid}")
        selector = f"reason={reason},involvedObject.uid={uid}"
        listed = ("get", "events", "--field-selector", selector, "-o", "name")
        eventually(lambda: bool(self.kubectl(*listed).strip()), what=f"an Event {reason}")

    def wait(self, **rendezvous: Any) -> None:
        """Wait until `status.rendezvous` has these fields."""
        found: Mapping[str, Any] = {}

        def holds() -> bool:
            nonlocal found
            found = self.status().get("rendezvous") or {}
            return all(found.get(name) == value for name, value in rendezvous.items())

        try:
            eventually(holds, what=f"the rendezvous shows {rendezvous}")
        except AssertionError as error:
            raise AssertionError(f"{error}, but {found}") from error

    # What the kubelet and the scheduler do.

    def bind(self, *pods: str) -> None:
        """Assign pods to nodes, in turn."""
        for pod in pods:
            self._await_pod(pod)
            index = int(pod.split("-")[1])
            target = {"apiVersion": "v1", "kind": "Node", "name": NODES[index % len(NODES)]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding"
            self.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))

    def run(self, *pods: str) -> None:
        """The worker containers of these pods run."""
        self.bind(*pods)
        for pod in pods:
            ready = {"type": "Ready", "status": "True"}
            self._patch(pod, phase="Running", conditions=[ready], state={"running": {"startedAt": _now()}})

    def join(self, *pods: str) -> None:
        """The agents of these pods begin to join."""
        for pod in pods:
            self.agents[pod] = self._agent(pod)
        for pod in pods:
            self.agents[pod].start()

    def exit(self, pod: str, code: int, reason: str) -> None:
        """The worker container of this pod ends."""
        phase = "Failed" if code else "Succeeded"
        self._patch(pod, phase=phase, state={"terminated": {"exitCode": code, "reason": reason}})

    def cannot_schedule(self, pod: str, message: str) -> None:
        """The scheduler finds no node."""
        self._await_pod(pod)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._patch(pod, phase="Pending", conditions=[{**condition, "lastTransitionTime": _now()}])

    def cannot_pull(self, pod: str, message: str) -> None:
        """The kubelet cannot pull the image."""
        self.bind(pod)
        self._patch(pod, phase="Pending", state={"waiting": {"reason": "ImagePullBackOff", "message": message}})

    def allow_evictions(self, allowed: int) -> None:
        """What the disruption controller writes once it has counted two pods of the job that run, or one."""
        counts = {"expectedPods": 2, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "disruptionsAllowed": allowed}
        patch = json.dumps({"status": {**counts, "observedGeneration": 1}})
        self.kubectl("patch", "poddisruptionbudget", JOB, "--subresource=status", "--type=merge", "-p", patch)

    def finish_deletion(self, *pods: str) -> None:
        """The containers of pods that are being deleted have ended."""
        for pod in pods:
            eventually(lambda pod=pod: bool(self._deleting(pod)), what=f"{pod} is being deleted")  # type: ignore[misc]
            self.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--ignore-not-found")

    def _patch(self, pod: str, *, phase: str, state: Mapping[str, Any] | None = None, **more: Any) -> None:
        container = {"name": "worker", "image": IMAGE, "imageID": "", "restartCount": 0, "ready": phase == "Running"}
        containers = [] if state is None else [{**container, "state": state}]
        body = {"status": {"phase": phase, "containerStatuses": containers, **more}}
        self.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps(body))

    def _agent(self, pod: str) -> Agent:
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--audience={TOKEN_AUDIENCE}")
        token = self.directory / pod
        token.write_text(self.kubectl("create", "token", "default", *bound).strip())
        run_id = self.kubectl("get", "elasticjob", JOB, "-o", "jsonpath={.metadata.uid}")
        endpoint = ServerEndpoint(host="127.0.0.1", port=self.port)
        address = f"10.0.0.{int(pod.split('-')[1]) + 1}"
        client = ImpatientClient(endpoint=endpoint, run_id=run_id, address=address, token_file=token)
        return Agent(client=client)

    def _await_pod(self, pod: str) -> None:
        eventually(lambda: self.cluster.kubectl.exists("-n", self.namespace, "pod", pod), what=f"{pod} exists")

    def _deleting(self, pod: str) -> str:
        found = ("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.metadata.deletionTimestamp}")
        return self.kubectl(*found)

    def _leftovers(self) -> str:
        """Children, which would be in the way of another job of the name."""
        return self.kubectl("get", CHILDREN, "--selector", LABEL_JOB_NAME, "-o", "name").strip()


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
