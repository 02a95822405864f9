"""Where operators are measured: a control plane with an audit log, and operators as processes of their own.

Each operator is a user of its own, so that the audit log tells their calls apart. The clients of a measurement, which
play nodes and agents, are other users.
"""

import contextlib
import io
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticjob.operator.settings import variable
from tests.bench import process_cost
from tests.bench.audit import Call, read
from tests.bench.training_operator import TrainingOperator
from tests.cluster import cluster as clusters
from tests.cluster.cluster import Cluster
from tests.cluster.processes import Started, start, wait_until
from tests.cluster.state import CONTROL_PLANE
from tests.unit.crds.schema import PATH

CLUSTER = "bench"
OURS = "elasticjob-operator"
PEER = "training-operator"
PLAYER = "player"
"""The user who plays the nodes and the agents."""
START_SECONDS = 120.0
END_SECONDS = 30.0
CLEAN_SECONDS = 240
PYTORCH_JOBS = "pytorchjobs.kubeflow.org"
ELASTIC_JOBS = "elasticjobs.elasticjob.dev"


@dataclass(frozen=True)
class Process:
    """A running operator."""

    started: Started
    port: int = 0
    health_port: int = 0

    def cpu_seconds(self, thread: str | None = None) -> float:
        """CPU time of all its threads so far, or of those with this name."""
        return process_cost.cpu_seconds(self.started.identity.pid, thread=thread)

    def mib(self) -> float:
        """Resident memory."""
        return process_cost.mib(self.started.identity.pid)


@dataclass(frozen=True)
class Site:
    """A control plane that knows both kinds of jobs."""

    cluster: Cluster

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a user who may do everything."""
        path = self.cluster.directory / f"user-{user}.kubeconfig"
        return path if path.exists() else self.cluster.user_kubeconfig(user, groups=["system:masters"])

    def position(self) -> int:
        """Where the audit log ends now."""
        return self.cluster.audit_log.stat().st_size

    def calls(self, position: int) -> list[Call]:
        """All calls that were answered since then."""
        return self.follow(position)[0]

    def follow(self, position: int) -> tuple[list[Call], int]:
        """All calls that were answered since then, and where to go on."""
        with self.cluster.audit_log.open("rb") as log:
            log.seek(position)
            content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        return list(read(io.StringIO(whole.decode(), newline="\n"))), position + len(whole)

    @contextlib.contextmanager
    def elasticjob(self, namespace: str) -> Iterator[Process]:
        """Our operator with its default settings, for the time of the block; its lease is in `namespace`."""
        port, health = free_ports(2)
        settings = {
            "namespace": namespace,
            "health_port": str(health),
            "rendezvous_port": str(port),
            "rendezvous_endpoint": f"127.0.0.1:{port}",
        }
        environ = {variable(name): value for name, value in settings.items()}
        with self._running(OURS, [sys.executable, "-m", "elasticjob.operator"], environ) as started:
            _wait(started, lambda: _is_ready(health) and _listens(port))
            yield Process(started=started, port=port, health_port=health)

    @contextlib.contextmanager
    def training_operator(self, peer: TrainingOperator, *arguments: str) -> Iterator[Process]:
        """The peer with its default settings, for the time of the block."""
        self.define(peer.definition, PYTORCH_JOBS)
        log = self.cluster.record.log(PEER)
        seen = log.stat().st_size if log.exists() else 0
        with self._running(PEER, [str(peer.program), *arguments], {}) as started:
            _wait(started, lambda: b"Starting workers" in log.read_bytes()[seen:])
            yield Process(started=started)

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace for the time of the block; it is gone with all that is in it before the next one begins."""
        with self.cluster.namespace() as name:
            yield name
        self.cluster.kubectl("wait", "--for=delete", f"namespace/{name}", f"--timeout={CLEAN_SECONDS}s", timeout=300)

    def define(self, definition: Path, name: str) -> None:
        """Have the API server know a kind of job."""
        self.cluster.kubectl("apply", "--server-side", "-f", str(definition))

        def is_served() -> bool:
            conditions = self.cluster.kubectl.json("get", "crd", name).get("status", {}).get("conditions") or ()
            return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

        # `kubectl wait` fails on a definition that has no conditions at all yet.
        wait_until(is_served, what=f"{name} to be served", timeout=START_SECONDS)

    @contextlib.contextmanager
    def _running(self, user: str, command: list[str], environ: Mapping[str, str]) -> Iterator[Started]:
        record = self.cluster.record
        tags = {**record.tags, **environ, "KUBECONFIG": str(self.kubeconfig(user))}
        started = start(user, command, log=record.log(user), tags=tags)
        try:
            yield started
        finally:
            _end(started)


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """A control plane for the time of the block."""
    cluster = clusters.up(name=CLUSTER, level=CONTROL_PLANE, audit=True, owned=True)
    try:
        made = Site(cluster=cluster)
        made.define(PATH, ELASTIC_JOBS)
        yield made
    finally:
        clusters.down(CLUSTER)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        reserved = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in reserved]


def _wait(started: Started, ready: Callable[[], bool]) -> None:
    wait_until(ready, what=f"start of {started.component}", timeout=START_SECONDS, watched=[started])


def _end(started: Started) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(started.identity.pid, signal.SIGTERM)
    wait_until(lambda: not started.identity.alive(), what=f"end of {started.component}", timeout=END_SECONDS)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
