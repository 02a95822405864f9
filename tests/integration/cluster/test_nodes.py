"""A cluster with nodes leaves the machine as it was, also after a node was lost and after a start was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cgroups, host, network, packages
from tests.cluster import cluster as clusters
from tests.cluster.build import binaries
from tests.cluster.cleanup import prune
from tests.cluster.fixtures import sole_use_of_nodes
from tests.cluster.node import PAUSE_IMAGE
from tests.cluster.paths import REPOSITORY
from tests.cluster.processes import CLUSTER_TAG, tagged, wait_until
from tests.cluster.state import FULL, all_records, cluster_directory, load

# In one worker, so that none waits for the other's cluster.
pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.xdist_group("nodes")]

# Other test processes have clusters of their own.
NAME = f"nodes-{os.getpid()}"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": PAUSE_IMAGE, "ports": [{"containerPort": 80, "hostPort": 19999}]}],
    },
}


def marks() -> dict[str, object]:
    """What a cluster with nodes changes on the machine."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "mounts": sorted(point for point in mounts if "elasticjob" in point or "cni" in point),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "chains": network.foreign_chains(),
        "groups": cgroups.groups("*"),
        "sysctls": host.read_sysctls(),
        "paths": host.absent_paths(),
        "processes": tagged({CLUSTER_TAG: str(cluster_directory(NAME))}),
        "directory": cluster_directory(NAME).exists(),
    }


@pytest.fixture
def before() -> Iterator[dict[str, object]]:
    packages.ensure(packages.NODE_PACKAGES)
    binaries()
    prune()
    with sole_use_of_nodes():
        others = [record.name for record in all_records() if record.level == FULL]
        if others:
            pytest.skip(f"a full cluster is up ({others[0]}), and only one fits on a machine")
        yield marks()
        clusters.down(NAME)


def test_down_leaves_the_machine_as_it_was(before: dict[str, object]) -> None:
    cluster = clusters.up(level=FULL, name=NAME, node_count=1, owned=True)
    with cluster.namespace() as namespace:
        cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(POD))
        cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/p", "--timeout=120s", timeout=130)
        assert marks().keys() == before.keys()
        assert all(value != before[name] for name, value in marks().items() if name != "sysctls")
        cluster.kill_node("node-1")
        cluster.start_node("node-1")
    assert clusters.down(NAME)
    assert marks() == before


def test_a_start_that_was_killed_is_taken_down_completely(before: dict[str, object]) -> None:
    command = [sys.executable, "-m", "tests.cluster", "up", "--nodes", "1", "--name", NAME]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starting:

        def has_kubelet() -> bool:
            record = load(NAME)
            return record is not None and "kubelet-node-1" in record.processes

        try:
            wait_until(has_kubelet, what="first kubelet", timeout=240)
        finally:
            starting.kill()
    assert clusters.down(NAME)
    assert marks() == before
