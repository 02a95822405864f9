"""Whom a drain concerns, and what is said about it. Pure.

A node is drained by an eviction of its pod, which is what `kubectl drain` asks for as well. The operator then forms the
next round without it while it still runs, and replaces it, if it can, on another machine. The new round waits for the
replacement, but not longer than the last call lasts. An eviction respects the PodDisruptionBudget of a job that can
shrink: one that has its minimum is not made smaller.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob.operator.model.fields import mapping, number
from elasticjob.operator.plugin.job import Job
from elasticjob.operator.plugin.text import plain
from elasticjob.operator.pod_facts import PodFacts, read_pods
from elasticjob.operator.pods import node_name
from elasticjob.rendezvous.wording import counted

_LISTED = 10


class UnknownTargetError(Exception):
    """The job has nothing of this name. The message is for people."""


@dataclass(frozen=True, kw_only=True)
class Leaver:
    """One pod that is to leave."""

    node: str
    pod: str
    uid: str
    machine: str
    is_leaving: bool

    @property
    def place(self) -> str:
        """What it is and where."""
        where = f" on machine {self.machine}" if self.machine else ""
        return f"{self.node} (pod {self.pod}{where})"


def leavers(job: Job, pods: Iterable[Mapping[str, Any]], target: str) -> list[Leaver]:
    """The pods that a drain of this target concerns, by index.

    Args:
        job: The job.
        pods: The pods that bear its labels.
        target: A node of the job, one of its pods, or a machine; looked for in this order.

    Raises:
        UnknownTargetError: The job has no such node, or it has no pod that runs.
    """
    living = [_leaver(job, pod) for pod in read_pods(pods, "") if not pod.final]
    newest = list({one.node: one for one in living}.values())
    for matches in (
        [one for one in newest if one.node == target],
        [one for one in living if one.pod == target],
        [one for one in living if one.machine == target],
    ):
        if matches:
            return matches
    raise UnknownTargetError(_unknown(job, newest, target))


def _leaver(job: Job, pod: PodFacts) -> Leaver:
    return Leaver(
        node=node_name(job.name, pod.index),
        pod=pod.name,
        uid=pod.uid,
        machine=pod.node,
        is_leaving=pod.deleting or pod.target,
    )


def _unknown(job: Job, known: Sequence[Leaver], target: str) -> str:
    if job.is_over:
        return f"{job.name} is over: no pod of it runs"
    if not known:
        return f"no pod of {job.name} runs: there is nothing to drain"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    listed = ", ".join(one.place for one in known[:_LISTED])
    return plain(f"{job.name} has no node, no pod and no machine {target!r}. It has {listed}{more}")


def eviction(leaver: Leaver, namespace: str) -> dict[str, Any]:
    """The Eviction of exactly this pod."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": leaver.pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": leaver.uid}},
    }


def outcome(job: Job, asked: Sequence[Leaver]) -> list[str]:
    """What is said of pods that are on their way, and of what happens now. Empty if none is."""
    if not asked:
        return []
    lines = [
        plain(f"{one.place} {'leaves already' if one.is_leaving else 'has been asked to leave'}.") for one in asked
    ]
    return [*lines, _consequence(job, len(asked)), f"Watch it: kubectl elasticjob status {job.name} --watch"]


def _consequence(job: Job, leaving: int) -> str:
    them = "its replacement joins" if leaving == 1 else "their replacements join"
    if job.replicas - leaving >= job.least:
        limit = number(mapping(job.spec, "rendezvous"), "lastCallTimeoutSeconds")
        return f"The others go on as soon as {them} from another machine, or without after {limit} s of last call."
    return f"Training pauses until {them}: the job needs {job.least} of its {counted(job.replicas, 'node')}."


def refusal(job: Job, leaver: Leaver, words: str) -> str:
    """What is said of a pod that the API server does not let go, with the API's own words."""
    return plain(
        f"{leaver.place} was not evicted: {words} The job keeps at least {job.least} of its "
        f"{counted(job.replicas, 'node')}: try again when all of them train, or lower spec.minReplicas."
    )
