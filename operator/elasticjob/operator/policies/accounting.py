"""Counts ends of pods, each once, as incidents.

Pods that fail in the same round are *one* incident: one crash makes its peers crash too, and one lost rack takes many
pods. Until the next round has formed, the number of incidents is the largest number of ends that a single node had.
So a node that crashes again and again before it ever joins is counted each time, and thirty that die together once.

An end is put down in the ledger together with its count. It must be stored before anything is done about it; a crash in
between finds either neither or both.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from elasticjob.operator import constants
from elasticjob.operator.model import Ledger
from elasticjob.operator.model.stamps import parse_time
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.policies.pod_end import EndKind, PodEnd
from elasticjob.operator.policies.suspects import suspect

QUICK_END = timedelta(seconds=120)
"""A pod that ends sooner after it was made is a sign of a crash loop."""


@dataclass(frozen=True, kw_only=True)
class NodeEnd:
    """An end of a node that was not put down before. `pod` is None if the pod is gone without a trace.

    Args:
        in_place: 0 if the attempt is over. Else the kubelet restarts the worker in its pod, and this stands for so many
            such ends.
    """

    index: int
    attempt: int
    end: PodEnd
    pod: PodFacts | None = None
    in_place: int = 0

    @property
    def announced(self) -> bool:
        """Whether the node could still leave in time. One whose machine does not report is told nothing any more."""
        return self.end.announced and (self.pod is None or self.pod.unreachable_since is None)


def current_pods(ledger: Ledger, pods: Iterable[PodFacts]) -> dict[int, PodFacts]:
    """The pod of each node that counts: the newest attempt that is not over."""
    current: dict[int, PodFacts] = {}
    for pod in pods:
        if pod.attempt >= ledger.ended.get(pod.index, 0):
            current[pod.index] = pod
    return current


def enter_round(ledger: Ledger, formed: int) -> Ledger:
    """Take note of the newest formed round. What failed before it formed belongs to another incident."""
    if formed <= ledger.round:
        return ledger
    return replace(ledger, round=formed, round_failures={}, round_disruptions={}, round_drained=frozenset())


def account(ledger: Ledger, pods: Iterable[PodFacts], stamp: str) -> tuple[Ledger, tuple[NodeEnd, ...]]:
    """Put down every end that is new.

    Args:
        ledger: What was put down before.
        pods: All pods of the job, by attempt.
        stamp: The present time, kept for the pause before a replacement.

    Returns:
        The new ledger and the ends of nodes that belong to the job, those in place first. An end of a node that does
        not belong to it any more is put down, but charged to nobody.
    """
    current = current_pods(ledger, pods)
    ledger = _see(ledger, current)
    ends = tuple(_new_ends(ledger, current))
    in_place = tuple(_ends_in_place(ledger, current))
    charged = tuple(one for one in ends if one.index in ledger.indexes)
    completed = ledger.completed.union(one.index for one in charged if one.end.kind is EndKind.SUCCEEDED)
    over = {one.index: one.attempt + 1 for one in ends if one.index not in completed}
    ledger = replace(ledger, ended={**ledger.ended, **over}, completed=completed)
    told = (*in_place, *charged)
    return _blame(_charge(ledger, told, stamp), charged, parse_time(stamp)), told


def suspend(ledger: Ledger, pods: Iterable[PodFacts], formed: int) -> Ledger:
    """The ledger of a job without nodes: every attempt is over, on nobody's account. What was counted stays counted."""
    seen = _see(ledger, current_pods(ledger, pods))
    return replace(
        write_off(seen, seen.seen),
        indexes=frozenset(),
        completed=frozenset(),
        round_failures={},
        round_disruptions={},
        round_drained=frozenset(),
        quick_ends={},
        ends_in_place={},
        round=max(ledger.round, formed),
        base_round=max(ledger.round, formed),
    )


def write_off(ledger: Ledger, indexes: Iterable[int]) -> Ledger:
    """Declare the present attempts of some nodes over, on nobody's account: they leave because they are told to."""
    leaving = frozenset(indexes)
    ended = {**ledger.ended, **{index: ledger.seen.get(index, 0) for index in leaving}}
    return replace(ledger, ended=ended, completed=ledger.completed - leaving)


def _see(ledger: Ledger, current: Mapping[int, PodFacts]) -> Ledger:
    """Note which attempts exist. A pod ahead of the ledger (a restored backup) shows that the older ones are over."""
    seen = {**ledger.seen, **{index: pod.attempt + 1 for index, pod in current.items()}}
    ended = {**ledger.ended, **{index: pod.attempt for index, pod in current.items()}}
    in_place = {
        index: count for index, count in ledger.ends_in_place.items() if seen.get(index) == ledger.seen.get(index)
    }
    return replace(ledger, seen=seen, ended=ended, ends_in_place=in_place)


def _new_ends(ledger: Ledger, current: Mapping[int, PodFacts]) -> Iterable[NodeEnd]:
    for index in sorted(ledger.seen):
        attempt = ledger.ended.get(index, 0)
        if index in ledger.completed or attempt >= ledger.seen[index]:
            continue
        pod = current.get(index)
        if pod is None:
            gone = PodEnd(kind=EndKind.DISRUPTED, reason=constants.POD_GONE, message="the pod was deleted")
            yield NodeEnd(index=index, attempt=attempt, end=gone)
        elif pod.end is not None:
            yield NodeEnd(index=index, attempt=attempt, end=pod.end, pod=pod)


def _ends_in_place(ledger: Ledger, current: Mapping[int, PodFacts]) -> Iterable[NodeEnd]:
    for index, pod in sorted(current.items()):
        fresh = pod.ends_in_place.count - ledger.ends_in_place.get(index, 0)
        last = pod.ends_in_place.last
        if index in ledger.indexes and fresh > 0 and last is not None:
            yield NodeEnd(index=index, attempt=pod.attempt, end=last, pod=pod, in_place=fresh)


def _charge(ledger: Ledger, ends: Sequence[NodeEnd], stamp: str) -> Ledger:
    failures, disruptions = dict(ledger.round_failures), dict(ledger.round_disruptions)
    in_place = dict(ledger.ends_in_place)
    for one in ends:
        in_place[one.index] = in_place.get(one.index, 0) + one.in_place
        if one.end.kind is not EndKind.SUCCEEDED:
            numbers = failures if one.end.kind is EndKind.FAILED else disruptions
            numbers[one.index] = numbers.get(one.index, 0) + max(1, one.in_place)
    drained = ledger.round_drained.union(one.index for one in ends if one.announced)
    charged = failures != ledger.round_failures or disruptions != ledger.round_disruptions
    return replace(
        ledger,
        failures=ledger.failures + _most(failures) - _most(ledger.round_failures),
        disruptions=ledger.disruptions + _most(disruptions) - _most(ledger.round_disruptions),
        round_failures=failures,
        round_disruptions=disruptions,
        round_drained=drained,
        ends_in_place={index: count for index, count in in_place.items() if count},
        charged_at=stamp if charged else ledger.charged_at,
    )


def _blame(ledger: Ledger, ends: Iterable[NodeEnd], now: datetime) -> Ledger:
    """Note which nodes end soon again and again, and the machines that this happens on."""
    bad = [one for one in ends if one.end.kind is not EndKind.SUCCEEDED and one.pod is not None]
    quick = dict(ledger.quick_ends)
    for one in bad:
        created = one.pod.created if one.pod else None
        if created is not None:
            is_quick = now - created < QUICK_END
            quick[one.index] = quick.get(one.index, 0) + 1 if is_quick else 0
    machines = (one.pod.node for one in bad if one.pod and one.end.reason != constants.POD_DELETED)
    return replace(
        ledger,
        quick_ends={index: times for index, times in quick.items() if times},
        suspects=suspect(ledger.suspects, machines),
    )


def _most(numbers: Mapping[int, int]) -> int:
    return max(numbers.values(), default=0)
