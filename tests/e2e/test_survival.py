"""The rendezvous outlives its own host, and nobody who slept through a change can undo it.

The training here prints its round once a second, so that the log of a pod tells in which rounds it acted.
"""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.state import State
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.network import CONTROL_PLANE_ADDRESS
from tests.e2e.callers import call, pod_token
from tests.e2e.etcd_states import PREFIX, in_etcd
from tests.e2e.jobs import Object, job, launched
from tests.e2e.pod_processes import paused, signal_pod
from tests.e2e.slow_way import SlowWay, slow_way
from tests.e2e.space import Space, is_formed, ranks, round_of
from tests.e2e.suite import NAMESPACE, RELEASE, Suite

pytestmark = pytest.mark.timeout(400, func_only=True)

LEASE_SECONDS = 6
LATE_STATE_WRITE = "elasticjob_rendezvous_stale_writes_refused_total"
LATE_LEASE_WRITE = 'elasticjob_api_calls_total{code="409",resource="leases",verb="put"}'
GATE = "/dev/shm/go"
TICKS = """
import os, time
while True:
    print("round", os.environ["ELASTICJOB_ROUND"], "rank", os.environ["RANK"], flush=True)
    time.sleep(1)
"""
# Node 1 joins when it is told to, so that a test can be in the middle of a join for as long as it likes.
GATED = f"""
import os, time
while os.environ["ELASTICJOB_NODE_INDEX"] == "1" and not os.path.exists({GATE!r}):
    time.sleep(0.2)
os.execvp("python3", {launched(TICKS)!r})
"""

Kill = Callable[[Suite], None]


def kill_the_process(suite: Suite) -> None:
    signal_pod(suite.leader_pod()["metadata"]["uid"], signal.SIGKILL)


def delete_the_pod(suite: Suite) -> None:
    suite.delete_leader()


class Watched:
    """A job whose pods and rounds are held against what they were before."""

    def __init__(self, space: Space, name: str) -> None:
        self.space = space
        self.name = name
        self._highest = 0
        self._epoch = 0

    def wait(self, what: str, reached: Callable[[Object], bool], *, seconds: float) -> Object:
        """Wait for a status, while neither round nor epoch may fall."""

        def seen(status: Object) -> bool:
            epoch = int(status.get("rendezvous", {}).get("epoch", 0))
            assert round_of(status) >= self._highest, f"round fell from {self._highest}: {status}"
            assert epoch >= self._epoch, f"epoch fell from {self._epoch}: {status}"
            self._highest, self._epoch = round_of(status), epoch
            return reached(status)

        return self.space.wait_status(self.name, what, seen, seconds=seconds)

    def wait_training(self, *, nodes: int, newer_than: int = 0, epoch: int = 0, seconds: float = 120) -> Object:
        """Wait for a round with so many nodes, as a leader of a later epoch than the given one tells it."""
        return self.wait(
            f"a round newer than {newer_than} with {nodes} nodes, in an epoch after {epoch}",
            lambda status: (
                round_of(status) > newer_than
                and is_formed(status)
                and len(ranks(status)) == nodes
                and status["rendezvous"]["epoch"] > epoch
            ),
            seconds=seconds,
        )

    def open_gate(self, pod: str) -> None:
        """Let node 1 join."""
        self.space.kubectl("exec", pod, "-c", "worker", "--", "python3", "-c", f"open({GATE!r}, 'w')")

    def is_running(self, pod: str) -> bool:
        """Whether the worker of a pod runs, so that it can be told to join."""
        return any(
            "running" in container["state"]
            for found in self.space.pods(self.name)
            if found["metadata"]["name"] == pod
            for container in found["status"].get("containerStatuses", ())
        )

    def container_restarts(self) -> int:
        """How often containers of the job's pods were started again."""
        return sum(
            container["restartCount"]
            for pod in self.space.pods(self.name)
            for container in pod["status"].get("containerStatuses", ())
        )

    def rounds_of(self, pod: str) -> list[int]:
        """The rounds in which the training of a pod acted, in the order of its log."""
        return [int(found) for found in re.findall(r"^round (\d+) rank", self.space.logs(pod), re.MULTILINE)]

    def never_fell_back(self, pod: str) -> bool:
        """Whether the training of a pod never acted in an older round than before."""
        rounds = self.rounds_of(pod)
        return rounds == sorted(rounds)


@pytest.fixture
def gated(suite: Suite, space: Space) -> Watched:
    """A job of two nodes, both needed, of which one has joined."""
    command = ["python3", "-c", GATED]
    body = job("gated", image=suite.image, command=command, replicas=2, minimum=2, maximum=2)
    space.apply(body)
    watched = Watched(space, "gated")
    watched.wait(
        "one of two nodes to have joined",
        lambda status: status.get("rendezvous", {}).get("waiting") == 1,
        seconds=120,
    )
    space.wait("the other to stand at the gate", lambda: watched.is_running("gated-1-0"), seconds=120)
    return watched


def test_an_operator_killed_in_mid_join_is_followed_by_one_that_ends_the_join(
    suite: Suite, space: Space, gated: Watched
) -> None:
    pods = space.pod_uids("gated")

    kill_the_process(suite)
    gated.open_gate("gated-1-0")

    after = gated.wait_training(nodes=2)
    assert round_of(after) == 1
    assert space.pod_uids("gated") == pods
    assert gated.container_restarts() == 0


@pytest.mark.parametrize("kill", [kill_the_process, delete_the_pod])
def test_an_operator_killed_while_training_runs_disturbs_nobody(
    suite: Suite, space: Space, gated: Watched, kill: Kill
) -> None:
    gated.open_gate("gated-1-0")
    before = gated.wait_training(nodes=2)
    pods = space.pod_uids("gated")

    kill(suite)

    after = gated.wait_training(nodes=2, epoch=before["rendezvous"]["epoch"])
    gated.wait("members to have reported", lambda status: "held" not in str(status["conditions"]), seconds=120)
    assert round_of(after) == round_of(before)
    assert ranks(after) == ranks(before)
    assert space.pod_uids("gated") == pods
    assert gated.container_restarts() == 0
    assert {number for pod in pods for number in gated.rounds_of(pod)} == {round_of(before)}


def test_an_operator_killed_while_a_round_re_forms_is_followed_by_one_that_forms_it(
    suite: Suite, space: Space, gated: Watched
) -> None:
    gated.open_gate("gated-1-0")
    before = gated.wait_training(nodes=2)
    survivor = space.pod_uids("gated")["gated-0-0"]
    space.kubectl("delete", "pod", "gated-1-0", "--grace-period=0", "--force")
    gated.wait(
        "the survivor to wait for the replacement",
        lambda status: status["phase"] == "Reforming" and status["rendezvous"]["waiting"] == 1,
        seconds=120,
    )
    space.wait("the replacement to stand at the gate", lambda: gated.is_running("gated-1-1"), seconds=120)
    pods = space.pod_uids("gated")

    kill_the_process(suite)
    gated.open_gate("gated-1-1")

    after = gated.wait_training(nodes=2, newer_than=round_of(before))
    assert round_of(after) == round_of(before) + 1
    assert space.pod_uids("gated") == pods
    assert pods["gated-0-0"] == survivor
    assert gated.container_restarts() == 0
    assert after["restarts"]["failures"] == 0


def test_a_paused_worker_cannot_act_in_the_round_that_was_formed_without_it(suite: Suite, space: Space) -> None:
    body = job("paused", image=suite.image, command=launched(TICKS), replicas=2, minimum=1, maximum=2)
    body["spec"]["rendezvous"] = {
        "lastCallTimeoutSeconds": 2,
        "closeTimeoutSeconds": 2,
        "keepAliveIntervalSeconds": 1,
        "keepAliveMaxAttempts": 3,
    }
    space.apply(body)
    watched = Watched(space, "paused")
    first = watched.wait_training(nodes=2)
    pods = space.pod_uids("paused")
    slept, stayed = ranks(first)[0], ranks(first)[1]

    with paused(pods[slept]):
        second = watched.wait_training(nodes=1, newer_than=round_of(first))
        assert ranks(second) == {0: stayed}
        run, url = space.get("elasticjob", "paused")["metadata"]["uid"], suite.rendezvous_url()
        token = pod_token(space, slept)
        old = f"/v1/runs/{run}/rounds/{round_of(first)}/endpoint"
        where = {"incarnation": "0" * 32, "address": "10.0.0.1", "port": 1}
        status, answer = call(url, "PUT", old, where, token=token)
        assert (status, answer["error"]["code"]) in {(409, "stale-round"), (403, "fenced")}, answer

    # It is told to join again, and comes back as a member of a later round.
    third = watched.wait_training(nodes=2, newer_than=round_of(second))
    assert set(ranks(third).values()) == set(pods)
    space.wait("training of both", lambda: round_of(third) in watched.rounds_of(slept), seconds=120)
    assert set(watched.rounds_of(slept)) == {round_of(first), round_of(third)}
    assert watched.never_fell_back(slept)
    assert space.pod_uids("paused") == pods
    assert watched.container_restarts() == 0


@pytest.fixture(scope="module")
def two_operators(suite: Suite) -> Iterator[None]:
    """A leader and a standby, until the tests of this module are over."""
    suite.install(RELEASE, "replicaCount=2", f"leaseDurationSeconds={LEASE_SECONDS}")
    yield
    suite.install(RELEASE)


def metric(pod: Object, sample: str) -> float:
    """A sample of an operator's metrics; 0 if it has none."""
    url = f"http://{pod['status']['podIP']}:8080/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == sample), 0.0)


def labelled_leaders(suite: Suite) -> set[str]:
    selected = suite.kubectl("-n", NAMESPACE, "get", "pods", "-l", "elasticjob.dev/leader=true", "-o", "name")
    return {line.removeprefix("pod/") for line in selected.split()}


def test_a_standby_takes_over_when_the_leader_dies(suite: Suite, space: Space, two_operators: None) -> None:
    space.apply(job("watched", image=suite.image, command=launched(TICKS)))
    watched = Watched(space, "watched")
    before = watched.wait_training(nodes=2)
    pods, leader = space.pod_uids("watched"), suite.leader_pod()["metadata"]["name"]

    suite.delete_leader()

    space.wait("another leader", lambda: suite.leader() not in ("", leader), seconds=120)
    space.kubectl("scale", "elasticjob", "watched", "--replicas=3")
    after = watched.wait_training(nodes=3, newer_than=round_of(before), epoch=before["rendezvous"]["epoch"])
    assert pods.items() <= space.pod_uids("watched").items()
    assert after["restarts"] == {**after["restarts"], "failures": 0, "disruptions": 0}
    assert watched.container_restarts() == 0


@contextmanager
def slow_etcd() -> Iterator[tuple[EtcdServer, SlowWay]]:
    """An etcd, and a way to it that pods can take."""
    with (
        etcd_server(f"slow-{os.getpid()}", v2=False) as server,
        slow_way(CONTROL_PLANE_ADDRESS, (server.host, server.port)) as way,
    ):
        yield server, way


def test_a_leader_that_was_paused_is_refused_with_all_that_it_had_on_its_way(
    suite: Suite, space: Space, two_operators: None
) -> None:
    """The state write of a join is on its way when the leader falls asleep, and arrives when another one leads."""
    with slow_etcd() as (etcd, way):
        body = job("led", image=suite.image, command=launched(TICKS), replicas=2, minimum=1, maximum=3)
        conf = {"endpoint": way.endpoint, "prefix": PREFIX, "read_timeout": "30"}
        body["spec"]["rendezvous"] |= {"backend": "etcd", "conf": conf}
        space.apply(body)
        watched = Watched(space, "led")
        run_id = space.get("elasticjob", "led")["metadata"]["uid"]

        def stored() -> State:
            data = in_etcd(etcd, run_id)
            assert data is not None
            return decode(data, source="etcd")

        before = watched.wait_training(nodes=2)
        space.wait("the leader's label", lambda: labelled_leaders(suite) == {suite.leader()}, seconds=120)
        pods, old = space.pod_uids("led"), suite.leader_pod()
        late_writes = (LATE_STATE_WRITE, LATE_LEASE_WRITE)
        refused = [metric(old, sample) for sample in late_writes]

        way.hold(old["status"]["podIP"])
        space.kubectl("scale", "elasticjob", "led", "--replicas=3")
        space.wait("a state write on its way", lambda: b"/v3/kv/txn" in way.held, seconds=120, job="led")
        with paused(old["metadata"]["uid"]):
            began = time.monotonic()
            name = old["metadata"]["name"]
            space.wait("another leader", lambda: suite.leader() not in ("", name), seconds=120)
            space.wait(
                "workers to be sent to it alone", lambda: labelled_leaders(suite) == {suite.leader()}, seconds=120
            )
            space.wait(
                "another leader's epoch in the state",
                lambda: stored().epoch > before["rendezvous"]["epoch"],
                seconds=120,
            )
            space.wait(
                "two lease times", lambda: time.monotonic() - began > 2 * LEASE_SECONDS, seconds=3 * LEASE_SECONDS
            )
            way.deliver()

        after = watched.wait_training(nodes=3, newer_than=round_of(before), epoch=before["rendezvous"]["epoch"])
        new = suite.leader()
        space.wait("one labelled leader", lambda: labelled_leaders(suite) == {new}, seconds=120)
        space.wait(
            "its late writes to be refused",
            lambda: all(metric(old, sample) > count for sample, count in zip(late_writes, refused, strict=True)),
            seconds=120,
        )
        assert "no longer leading" in suite.kubectl("-n", NAMESPACE, "logs", name)
        assert metric(old, "elasticjob_leader") == 0
        assert suite.leader() == new
        assert (stored().epoch, stored().round) == (after["rendezvous"]["epoch"], round_of(after))
        assert ranks(space.status("led")) == ranks(after)

        space.kubectl("scale", "elasticjob", "led", "--replicas=2")
        smaller = watched.wait_training(nodes=2, newer_than=round_of(after))
        assert smaller["rendezvous"]["epoch"] == after["rendezvous"]["epoch"]
        assert space.pod_uids("led").items() >= pods.items()
        assert watched.container_restarts() == 0
        assert all(watched.never_fell_back(pod) for pod in pods)
