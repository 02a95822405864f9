"""The facade: bring a cluster up, find one that runs, use it, take it down.

Starting is one sequence per level. Each started process is written down right away, and whatever goes wrong on the
way (Ctrl-C too) takes down what was made so far: a cluster is either ready or not there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.cluster import control_plane, network, packages
from tests.cluster.build import BUILD_TIMEOUT, binaries
from tests.cluster.cgroups import require_v1
from tests.cluster.cleanup import kill_node, take_down
from tests.cluster.control_plane import LOCAL_CONTROLLERS, Files, Options, server_url
from tests.cluster.errors import ClusterError
from tests.cluster.etcd import start_etcd
from tests.cluster.full import FULL_PORTS, Nodes, node_lease, start_nodes, wait_for_node
from tests.cluster.kept_logs import keep
from tests.cluster.kubeconfig import bearer_token, kubeconfig, write_kubeconfig
from tests.cluster.kubectl import Helm, Kubectl
from tests.cluster.locks import exclusive
from tests.cluster.processes import Started, wait_until
from tests.cluster.progress import say, step
from tests.cluster.raw_api import RawApi
from tests.cluster.state import CONTROL_PLANE, FULL, Record, all_records, check_name, create, load, save

DEFAULT_NAME = "main"
DEFAULT_NODES = 2
_LOCK_SECONDS = BUILD_TIMEOUT + 600


@dataclass(frozen=True)
class Cluster:
    """A running cluster. Cheap to make: everything it knows is in the record on disk."""

    name: str

    @property
    def record(self) -> Record:
        """What is written down about it now."""
        record = load(self.name)
        if record is None:
            raise ClusterError(f"no cluster {self.name!r} is up")
        return record

    @property
    def directory(self) -> Path:
        """The directory of everything that belongs to it."""
        return self.record.directory

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of a user who may do everything."""
        return Files(self.record.directory).admin

    @property
    def server(self) -> str:
        """The address of the API server, for programs on this machine."""
        return server_url(self.record)

    @property
    def authority(self) -> Path:
        """The certificate by which clients know the API server."""
        return Files(self.record.directory).authority

    @property
    def audit_log(self) -> Path:
        """The audit log, one JSON object a line, when the cluster was started with `audit`."""
        return Files(self.record.directory).audit_log

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as a user who may do everything."""
        return Kubectl(program=binaries() / "kubectl", kubeconfig=self.kubeconfig)

    @property
    def helm(self) -> Helm:
        """helm as a user who may do everything."""
        return Helm(program=binaries() / "helm", kubeconfig=self.kubeconfig, home=self.directory / "helm")

    @property
    def nodes(self) -> Sequence[str]:
        """The names of its nodes."""
        return self.record.nodes

    def namespace(self, *, restricted: bool = False) -> contextlib.AbstractContextManager[str]:
        """A namespace with a name of its own; `restricted` enforces that Pod Security profile in it."""
        return RawApi(self.record).namespace(restricted=restricted)

    def service_account_kubeconfig(
        self, namespace: str, account: str, *, seconds: int = 3600, path: Path | None = None
    ) -> Path:
        """A kubeconfig that acts as a service account, by a token as its pods have one."""
        token = self.kubectl("-n", namespace, "create", "token", account, f"--duration={seconds}s").strip()
        content = kubeconfig(
            server=self.server,
            authority=self.authority.read_bytes(),
            user=bearer_token(token),
            namespace=namespace,
        )
        return write_kubeconfig(path or self.directory / f"{namespace}-{account}.kubeconfig", content)

    def user_kubeconfig(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user with a client certificate; what it may do is a matter of RBAC."""
        path = self.directory / f"user-{user}.kubeconfig"
        return control_plane.write_user(self.record, user=user, groups=groups, path=path)

    def kill_node(self, node: str) -> None:
        """Lose a node as when its machine loses power: no process says goodbye, no packet leaves."""
        with _operating(self.name):
            self._lose_node(node)

    def _lose_node(self, node: str) -> Record:
        record = self.record
        lost = Nodes(record).get(node)
        kill_node(record, node, tags=lost.tags, subnet=lost.subnet)
        return save(record.without_processes(lost.components))

    def start_node(self, node: str) -> None:
        """Bring a killed node back and wait until it is Ready; one that runs is left alone."""
        with _operating(self.name):
            running = Nodes(self.record).running()
            if any(node == other.name for other in running):
                return
            # An earlier start may have been interrupted half-way.
            record = self._lose_node(node)
            before = node_lease(self.kubectl, node)
            record = Nodes(record).start(binaries(), node)
            wait_for_node(self.kubectl, node, newer_than=before, record=record)

    def mend(self) -> None:
        """Undo what was done to the nodes by somebody who was killed before the end: paused, lost, cordoned."""
        for process in self.record.processes.values():
            if process.alive():
                os.kill(process.pid, signal.SIGCONT)
        for node in self.nodes:
            self.start_node(node)
        self.kubectl("uncordon", *self.nodes)

    def load_image(self, archive: Path) -> None:
        """Import an image archive into the containerd of every node that runs."""
        Nodes(self.record).load_image(archive)


def find(name: str = DEFAULT_NAME) -> Cluster | None:
    """The cluster with this name, if it is up and healthy."""
    record = load(name)
    return Cluster(name) if record is not None and record.healthy() else None


def up(
    *,
    level: str,
    name: str = DEFAULT_NAME,
    node_count: int = DEFAULT_NODES,
    controllers: bool = True,
    admission_plugins: Sequence[str] = (),
    audit: bool = False,
    owned: bool = False,
) -> Cluster:
    """A running cluster with this name: the one that is there when it is healthy, else a new one.

    `owned`: it belongs to this process, and `prune` may take it down when this process is gone. One that belongs to
    another process is refused: that process ends it when it likes.
    """
    check_name(name)
    binaries()
    with _operating(name), _alone(name, level=level):
        _check_owner(name)
        found = find(name)
        if found is not None:
            return _reusable(found, level=level)
        _clear(name)
        if level == FULL:
            _check_machine()
        record = create(name, level=level, ports=_ports(level, node_count), owned=owned)
        options = Options(
            address=network.CONTROL_PLANE_ADDRESS if level == FULL else None,
            controllers=controllers,
            admission_plugins=admission_plugins,
            audit=audit,
        )
        with _taken_down_on_failure(record), step(f"starting cluster {name} ({level})"):
            _bring_up(record, options, node_count=node_count)
        return Cluster(name)


def down(name: str = DEFAULT_NAME) -> bool:
    """Take a cluster down, complete or not; False when there was none."""
    check_name(name)
    with _operating(name):
        record = load(name)
        if record is None:
            return False
        take_down(record)
        return True


def _check_owner(name: str) -> None:
    record = load(name)
    if record is not None and record.is_anothers():
        raise ClusterError(f"cluster {name} belongs to another process, which still runs: choose another name")


def _ports(level: str, node_count: int) -> Sequence[str]:
    if level == CONTROL_PLANE:
        return control_plane.PORTS
    if level == FULL and 1 <= node_count <= network.MAX_NODES:
        kubelets = [f"kubelet-{index + 1}" for index in range(node_count)]
        return [*control_plane.PORTS, *FULL_PORTS, *kubelets]
    raise ClusterError(
        f"level {level!r} with {node_count} nodes: the levels are {CONTROL_PLANE} and {FULL}, the latter with"
        f" 1 to {network.MAX_NODES} nodes"
    )


def _reusable(cluster: Cluster, *, level: str) -> Cluster:
    if cluster.record.level != level:
        raise ClusterError(
            f"cluster {cluster.name} is up with level {cluster.record.level}, not {level}: take it down first, or"
            " choose another name"
        )
    say(f"cluster {cluster.name} is up already")
    return cluster


def _check_machine() -> None:
    if os.getuid() != 0:
        raise ClusterError(
            f"level {FULL} needs root (user id is {os.getuid()}): nodes use cgroups, mounts and addresses"
        )
    packages.ensure(packages.NODE_PACKAGES)
    require_v1()
    if chains := network.foreign_chains():
        raise ClusterError(
            f"this machine's packet rules hold chains of another Kubernetes ({', '.join(chains[:3])} ...): a second one"
            " would break both"
        )


def _clear(name: str) -> None:
    left_over = load(name)
    if left_over is not None:
        say(f"removing what is left of an earlier cluster {name}")
        take_down(left_over)


def _bring_up(record: Record, options: Options, *, node_count: int) -> None:
    programs = binaries()
    control_plane.write_credentials(record, address=options.address)
    record = _start_control_plane(programs, record, options)
    if record.level == FULL:
        record = start_nodes(programs, record, node_count=node_count)
    save(replace(record, ready=True))


@contextlib.contextmanager
def _alone(name: str, *, level: str) -> Iterator[None]:
    """Nodes use addresses and packet rules of the machine, so there can be one full cluster only."""
    if level != FULL:
        yield
        return
    with exclusive("full", timeout=_LOCK_SECONDS, waiting_for="start of another full cluster"):
        others = [other.name for other in all_records() if other.level == FULL and other.name != name]
        if others:
            raise ClusterError(
                f"cluster {name}: only one full cluster fits on a machine, and {', '.join(others)} is there: use it,"
                f" or take it down with: python -m tests.cluster down --name {others[0]}"
            )
        yield


def _start_control_plane(programs: Path, record: Record, options: Options) -> Record:
    def noted(started: Started) -> Record:
        return save(record.with_process(started))

    record = noted(start_etcd(programs / "etcd", record))
    record = noted(control_plane.start_api_server(programs, record, options))
    full = record.level == FULL
    if options.controllers or full:
        controllers = ("*",) if full else LOCAL_CONTROLLERS
        started = control_plane.start_controller_manager(programs, record, controllers=controllers)
        record = noted(started)
        kubectl = Kubectl(program=programs / "kubectl", kubeconfig=Files(record.directory).admin)
        wait_until(
            lambda: kubectl.exists("-n", "default", "serviceaccount/default"),
            what="controller-manager to create a service account",
            timeout=120,
            watched=[started],
            poll=0.2,
        )
    if full:
        record = noted(control_plane.start_scheduler(programs, record))
    return record


@contextlib.contextmanager
def _operating(name: str) -> Iterator[None]:
    with exclusive(f"cluster-{name}", timeout=_LOCK_SECONDS, waiting_for=f"start or stop of cluster {name}"):
        yield


@contextlib.contextmanager
def _taken_down_on_failure(record: Record) -> Iterator[None]:
    with _termination_raises():
        try:
            yield
        except BaseException:
            say(f"cluster {record.name} did not come up: removing it again; its logs are in {keep(record)}")
            take_down(load(record.name) or record)
            raise


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Make SIGTERM an exception, as Ctrl-C is one; only the main thread can do that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def find_full() -> Cluster | None:
    """The full cluster of this machine, if one is up and healthy; waits for one that is being started.

    One that belongs to another process counts for nothing: it may be gone at any moment.
    """
    with exclusive("full", timeout=_LOCK_SECONDS, waiting_for="start of a full cluster"):
        usable = (record for record in all_records() if record.level == FULL and not record.is_anothers())
        found = (find(record.name) for record in usable)
        return next((cluster for cluster in found if cluster is not None), None)
