"""Machines that are drained, that lose power, and whose kubelet stops, under jobs that train on them.

The machine in trouble is the one without the operator, and each machine has one node of the job.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.e2e.callers import call, join, pod_token
from tests.e2e.jobs import job, launched
from tests.e2e.space import Object, Space, ranks, round_of
from tests.e2e.suite import Suite

GRACE_SECONDS = 90
GATE = "/dev/shm/go"
# A step counts once its checkpoint is there: only then does any rank tell it. The barrier is what makes it so.
TRAINING = """
import os, time
from pathlib import Path
import torch
import torch.distributed as dist

def say(*words):
    # A line as a whole or not at all: the process may be told to end at any moment.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

dist.init_process_group("gloo")
checkpoint, finish = Path("/checkpoints/step"), Path("/checkpoints/finish")
found = [int(checkpoint.read_text()) if checkpoint.exists() else 0]
dist.broadcast_object_list(found, src=0)
where, step, end = f"round {os.environ['ELASTICJOB_ROUND']}", found[0], torch.zeros(1)
say(where, "from step", step)
while not end.item():
    time.sleep(0.2)
    step += 1
    end = torch.tensor([float(finish.exists())])
    dist.all_reduce(end)
    if dist.get_rank() == 0:
        part = Path(f"/checkpoints/part-{os.environ['ELASTICJOB_ROUND']}")
        part.write_text(str(step))
        part.replace(checkpoint)
    dist.barrier()
    say(where, "step", step)
dist.destroy_process_group()
"""
ENDS_WHEN_TOLD = f"""
import os, time
print("round", os.environ["ELASTICJOB_ROUND"], flush=True)
while not os.path.exists({GATE!r}):
    time.sleep(0.2)
"""

Trouble = Callable[[Suite, str], AbstractContextManager[None]]


def one_a_machine(name: str, *, elsewhere: bool) -> Object:
    """Spreads the pods of a job; `elsewhere`: a machine in trouble does not count, so the other may have two."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor" if elsewhere else "Ignore",
        "labelSelector": {"matchLabels": {"elasticjob.dev/job-name": name}},
    }


def machine_of(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def pods_by_machine(space: Space, name: str) -> dict[str, str]:
    return {machine_of(pod): str(pod["metadata"]["name"]) for pod in space.pods(name)}


def machine_without_the_operator(suite: Suite) -> str:
    operator = machine_of(suite.leader_pod())
    return next(node for node in suite.cluster.nodes if node != operator)


def moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def steps(logs: str) -> list[int]:
    return [int(found) for found in re.findall(r"^round \d+ step (\d+)$", logs, re.MULTILINE)]


def resumed_from(logs: str, number: int) -> int:
    found = re.search(rf"^round {number} from step (\d+)$", logs, re.MULTILINE)
    assert found is not None, logs
    return int(found[1])


@contextmanager
def drained(suite: Suite, node: str) -> Iterator[None]:
    """A machine whose pods have been evicted, and that takes no new ones."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={2 * GRACE_SECONDS}s")
    try:
        suite.kubectl("drain", node, *options, timeout=2 * GRACE_SECONDS + 10)
        yield
    finally:
        suite.kubectl("uncordon", node)


@pytest.mark.timeout(600, func_only=True)
def test_a_drain_costs_no_step_and_no_failure(suite: Suite, space: Space) -> None:
    checkpoints = suite.apply_digits(
        space,
        script=TRAINING,
        last_call=3,
        # The pod is there until it has been told to leave, whoever is faster.
        worker={"lifecycle": {"preStop": {"sleep": {"seconds": 10}}}},
        terminationGracePeriodSeconds=GRACE_SECONDS,
        topologySpreadConstraints=[one_a_machine("digits", elsewhere=False)],
    )
    first = space.wait_training("digits", nodes=2, seconds=180)
    space.wait("three steps", lambda: "step 3" in space.all_logs("digits"), seconds=180, job="digits")
    node = machine_without_the_operator(suite)
    placed = pods_by_machine(space, "digits")
    leaving = placed.pop(node)
    (staying,) = placed.values()
    asked = datetime.now(timezone.utc)

    with drained(suite, node):
        second = space.wait_training("digits", nodes=1, newer_than=round_of(first), seconds=120)
        space.wait(
            "training to go on",
            lambda: f"round {round_of(second)} step" in space.logs(staying),
            seconds=180,
            job="digits",
        )
    third = space.wait_training("digits", nodes=2, newer_than=round_of(second), seconds=180)
    (checkpoints / "finish").touch()
    status = space.wait_phase("digits", "Succeeded", seconds=180)

    assert ranks(second) == {0: staying}
    assert leaving not in ranks(third).values()
    change = next(one for one in status["history"] if one["round"] == round_of(second))
    assert change["planned"], change
    assert moment(change["time"]) < asked + timedelta(seconds=GRACE_SECONDS)
    assert status["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    logs = space.logs(staying)
    assert steps(logs) == sorted(set(steps(logs))), "a step was trained again although its checkpoint was there"
    before = steps(logs.partition(f"round {round_of(second)} from")[0])
    assert resumed_from(logs, round_of(second)) in (before[-1], before[-1] + 1)


@contextmanager
def without_power(suite: Suite, node: str) -> Iterator[None]:
    """A machine that is gone with all that ran on it."""
    suite.cluster.kill_node(node)
    try:
        yield
    finally:
        suite.cluster.start_node(node)


@contextmanager
def without_kubelet(suite: Suite, node: str) -> Iterator[None]:
    """A machine whose containers run on, while its kubelet does nothing."""
    kubelet = suite.cluster.record.processes[f"kubelet-{node}"].pid
    os.kill(kubelet, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)


def evicted_after(seconds: int) -> list[Object]:
    """How long the pods stay on a machine that does not report."""
    return [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for name in ("not-ready", "unreachable")
    ]


# Without power, the silence of the agent shows that the node is lost. Where it still calls, it is left alone until
# Kubernetes evicts the pod.
@pytest.mark.timeout(400, func_only=True)
@pytest.mark.parametrize(
    ("trouble", "pod"),
    [
        pytest.param(without_power, {}, id="power"),
        pytest.param(without_kubelet, {"tolerations": evicted_after(2)}, id="kubelet"),
    ],
)
def test_the_node_on_a_machine_that_does_not_report_is_replaced_and_fenced(
    suite: Suite, space: Space, trouble: Trouble, pod: dict[str, Any]
) -> None:
    spread = [one_a_machine("kept", elsewhere=True)]
    body = job(
        "kept", image=suite.image, command=launched(ENDS_WHEN_TOLD), topologySpreadConstraints=spread, maximum=2, **pod
    )
    body["spec"]["rendezvous"] |= {"keepAliveIntervalSeconds": 1, "keepAliveMaxAttempts": 3}
    space.apply(body)
    first = space.wait_training("kept", nodes=2, seconds=120)
    node = machine_without_the_operator(suite)
    lost = pods_by_machine(space, "kept")[node]
    number = lost.split("-")[1]
    uid, replacement = space.pod_uids("kept")[lost], f"kept-{number}-1"
    run, url, token = space.get("elasticjob", "kept")["metadata"]["uid"], suite.rendezvous_url(), pod_token(space, lost)

    with trouble(suite, node):
        space.wait("a replacement", lambda: replacement in space.pod_uids("kept"), seconds=120, job="kept")
        after = space.wait_status(
            "kept",
            "a round with the replacement",
            lambda status: round_of(status) > round_of(first) and replacement in ranks(status).values(),
            seconds=120,
        )
        old, new = space.get("pod", lost), space.get("pod", replacement)
        assert old["metadata"]["uid"] == uid
        ready = next(one for one in old["status"]["conditions"] if one["type"] == "Ready")
        assert ready["status"] == "False"
        assert moment(new["metadata"]["creationTimestamp"]) >= moment(ready["lastTransitionTime"])
        assert machine_of(new) != node
        # Whatever still runs over there can neither take part again nor speak for the round that it was in.
        answer = join(url, run, token)[1]
        assert answer.get("state") != "formed", answer
        where = {"incarnation": "0" * 32, "address": "10.0.0.1", "port": 1}
        status, answer = call(url, "PUT", f"/v1/runs/{run}/rounds/{round_of(first)}/endpoint", where, token=token)
        assert (status, answer["error"]["code"]) in {(409, "stale-round"), (403, "fenced")}, answer

    assert after["restarts"] == {"failures": 0, "disruptions": 1, "resizes": 0}
    space.wait(
        "the lost pod to be gone",
        lambda: lost not in {one["metadata"]["name"] for one in space.pods("kept")},
        seconds=120,
        job="kept",
    )
    assert join(url, run, token)[0] in (401, 403)
    settled = space.wait_training("kept", nodes=2, seconds=120)
    assert set(space.pod_uids("kept")) == set(ranks(settled).values())
    for name in ranks(settled).values():
        space.kubectl("exec", name, "-c", "worker", "--", "python3", "-c", f"open({GATE!r}, 'w')")
    assert space.wait_phase("kept", "Succeeded", seconds=120)["restarts"] == after["restarts"]
