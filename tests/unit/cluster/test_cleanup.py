"""What gets taken away when a cluster goes down, and what is left alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import cgroups, host
from tests.cluster.cleanup import unix_sockets
from tests.cluster.mounts import mounts_below
from tests.cluster.network import pod_links, pod_subnet, removal_script
from tests.cluster.processes import CLUSTER_TAG, ENDS_WITH_STARTER, kill_all, start, tagged, wait_until

SAVED = """*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "not -j KUBE really" -j MASQUERADE
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X
COMMIT
"""


def test_our_chains_and_the_rules_that_lead_there_are_removed() -> None:
    assert removal_script("nat", SAVED).splitlines() == [
        "*nat",
        '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        "-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-F KUBE-SERVICES",
        "-F KUBE-SVC-X",
        "-F CNI-HOSTPORT-DNAT",
        "-X KUBE-SERVICES",
        "-X KUBE-SVC-X",
        "-X CNI-HOSTPORT-DNAT",
        "COMMIT",
    ]


def test_a_table_without_our_chains_is_left_alone() -> None:
    assert removal_script("nat", "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\nCOMMIT\n") == ""


ROUTES = """[
 {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
 {"dst": "10.244.1.2", "dev": "veth1"},
 {"dst": "10.244.2.2", "dev": "veth2"},
 {"dst": "10.244.2.3", "dev": "br0"},
 {"dst": "10.244.12.2", "dev": "veth12"},
 {"type": "blackhole", "dst": "10.244.2.9"}
]"""


def test_only_links_to_pods_of_the_subnet_are_cut() -> None:
    assert pod_links(ROUTES, pod_subnet(1)) == ["veth1"]
    assert pod_links(ROUTES, "10.244.0.0/16") == ["veth1", "veth2", "veth12"]


def test_mounts_are_unmounted_last_one_first_and_only_below_the_directory() -> None:
    table = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(["/", "/t/a", "/t/a/x", "/t/a/x/with\\040blank", "/t/ab/y"])
    )
    assert mounts_below(table, Path("/t/a")) == [Path("/t/a/x/with blank"), Path("/t/a/x")]


def test_processes_are_found_by_their_tag_and_killed(tmp_path: Path) -> None:
    ours, other = {CLUSTER_TAG: str(tmp_path)}, {CLUSTER_TAG: f"{tmp_path}x"}
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = start("ours", ["python3", "-c", script], log=tmp_path / "log", tags=ours)
    kept = start("other", ["python3", "-c", "import time; time.sleep(60)"], log=tmp_path / "log2", tags=other)
    try:
        assert started.identity.pid in tagged(ours)
        kill_all(lambda: tagged(ours), what="processes of the test")
        assert tagged(ours) == []
        assert not started.identity.alive()
        assert kept.identity.alive()
    finally:
        kill_all(lambda: tagged(other), what="processes of the test")


def test_a_process_is_found_by_its_tag_from_the_moment_it_exists(tmp_path: Path) -> None:
    # For a moment after its start the kernel shows an empty environment: about two of three are caught in it here.
    tags = {CLUSTER_TAG: str(tmp_path)}
    try:
        for number in range(50):
            process = start("short", ["/bin/sleep", "60"], log=tmp_path / "log", tags=tags)
            assert process.identity.pid in tagged(tags), number
    finally:
        kill_all(lambda: tagged(tags), what="processes of the test")


def test_what_is_to_end_with_its_starter_ends_although_that_is_killed() -> None:
    sleeper = [*ENDS_WITH_STARTER, "sleep", "60"]
    script = f"import subprocess; print(subprocess.Popen({sleeper}).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        wait_until(lambda: "sleep" in _name(started), what="start of the program", timeout=10)
        starter.kill()
    wait_until(lambda: "sleep" not in _name(started), what="end of the program", timeout=10)


def _name(pid: int) -> str:
    status = Path(f"/proc/{pid}/status")
    text = status.read_text() if status.exists() else ""
    return "" if "State:\tZ" in text else text.partition("\n")[0]


def test_only_sockets_of_shims_are_removed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        inode = os.readlink(f"/proc/self/fd/{listener.fileno()}")[len("socket:[") : -1]
        table = (
            "Num RefCount Protocol Flags Type St Inode Path\n"
            f"0: 00000002 00000000 00010000 0001 01 {inode} /run/containerd/s/abc\n"
            f"0: 00000002 00000000 00010000 0001 01 {inode} /run/other\n"
            "0: 00000002 00000000 00010000 0001 01 1 /run/containerd/s/foreign\n"
            f"0: 00000002 00000000 00010000 0001 01 {inode}\n"
        )
        assert unix_sockets(table, [os.getpid()]) == [Path("/run/containerd/s/abc")]


def test_kernel_settings_get_their_old_values_back(tmp_path: Path) -> None:
    for name in host.CHANGED_SYSCTLS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0\n")
    before = host.read_sysctls(tmp_path)
    (tmp_path / "kernel/panic").write_text("10\n")
    host.restore_sysctls(before, tmp_path)
    assert host.read_sysctls(tmp_path) == before


def test_a_group_of_another_cluster_is_not_ours(tmp_path: Path) -> None:
    for name in ("elasticjob.a.node-1", "elasticjob.a.node-2", "elasticjob.ab.node-1", "other"):
        (tmp_path / "pids" / name).mkdir(parents=True)
    found = [group.name for group in cgroups.groups("a", hierarchies=tmp_path)]
    assert found == ["elasticjob.a.node-1", "elasticjob.a.node-2"]
    assert [group.name for group in cgroups.groups("a", "node-2", tmp_path)] == ["elasticjob.a.node-2"]


@pytest.mark.parametrize("hierarchy", ["cpuset", "pids"])
def test_a_new_group_takes_its_cpus_from_the_hierarchy(tmp_path: Path, hierarchy: str) -> None:
    (tmp_path / hierarchy).mkdir()
    if hierarchy == "cpuset":
        (tmp_path / hierarchy / "cpuset.cpus").write_text("0-1")
        (tmp_path / hierarchy / "cpuset.mems").write_text("0")
    cgroups.create_group("g", tmp_path)
    copied = {path.name: path.read_text() for path in (tmp_path / hierarchy / "g").iterdir()}
    assert copied == ({"cpuset.cpus": "0-1", "cpuset.mems": "0"} if hierarchy == "cpuset" else {})
