"""The record of a cluster: written and read back, and what it says about the cluster."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.processes import ProcessId, identify, parse_start_time
from tests.cluster.state import FULL, PORT_RANGE, Record, check_name, choose_ports, from_json, to_json

US = identify(os.getpid())
# No process started at this tick with this number: the first process of a machine is not ours.
GONE = ProcessId(pid=os.getpid(), started=US.started + 1)
RECORD = Record(
    name="a",
    level=FULL,
    owner=US,
    ports={"api-server": 20001},
    processes={"etcd": US},
    nodes=["node-1"],
    sysctls={"vm/panic_on_oom": "0"},
    new_paths=["/var/lib/kubelet"],
    ready=True,
)


def test_a_record_reads_back_as_it_was_written() -> None:
    assert from_json(to_json(RECORD)) == RECORD


def test_a_record_of_another_version_is_refused() -> None:
    text = json.dumps({**json.loads(to_json(RECORD)), "format": 99})
    with pytest.raises(ClusterError, match="format 99"):
        from_json(text)


def test_a_cluster_is_healthy_while_all_its_processes_run() -> None:
    assert RECORD.healthy()
    assert not replace(RECORD, processes={"etcd": US, "kubelet": GONE}).healthy()
    assert not replace(RECORD, ready=False).healthy()


def test_a_process_that_was_ended_on_purpose_does_not_make_it_unhealthy() -> None:
    lost = replace(RECORD, processes={"etcd": US, "kubelet-node-1": GONE})
    assert lost.without_processes(["kubelet-node-1", "containerd-node-1"]).healthy()


def test_a_cluster_is_orphaned_when_its_owner_is_gone() -> None:
    assert not RECORD.orphaned()
    assert replace(RECORD, owner=GONE).orphaned()
    assert not replace(RECORD, owner=None).orphaned()


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a/b", "..", "a" * 33])
def test_names_that_cannot_be_a_directory_or_a_cgroup_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="cluster name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "main", "t-1-gw0", "a" * 32])
def test_good_names_are_taken(name: str) -> None:
    check_name(name)


def test_ports_are_distinct_and_not_taken() -> None:
    kept = set(list(PORT_RANGE)[:50])
    taken = set(PORT_RANGE) - kept
    ports = choose_ports(["a", "b", "c"], taken=taken)
    assert list(ports) == ["a", "b", "c"]
    assert len(set(ports.values())) == 3
    assert set(ports.values()) <= kept


def test_a_port_on_which_something_listens_is_not_chosen() -> None:
    with socket.socket() as listener:
        port = next(iter(choose_ports(["x"], taken=set()).values()))
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with pytest.raises(ClusterError, match="no free port"):
            choose_ports(["a"], taken=set(PORT_RANGE) - {port})


def test_the_start_time_is_found_behind_any_program_name() -> None:
    fields = " ".join(str(number) for number in range(3, 53))
    stat = f"17 (a) b (c) S {fields.split(' ', 1)[1]}"
    assert parse_start_time(stat) == 22


def test_a_process_that_was_not_reaped_does_not_run() -> None:
    rest = " ".join(str(number) for number in range(4, 53))
    assert parse_start_time(f"17 (x) Z {rest}") is None
