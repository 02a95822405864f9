"""An operator that is killed at any moment of the life of a job leaves nothing undone and does nothing twice.

The life is always the same: growing, failures, planned and unplanned losses, restarts in place, a crash loop, a
suspension, shrinking, and an end. A moment is before or after any single write, or between a status and the Events
about it. After a kill the successor knows what is stored and nothing else, and serves the rendezvous a little later.
What is left when all is over must be what an operator that never died leaves. The seed is in the name of the test.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from elasticjob.operator.model import ElasticJobStatus, Ledger
from elasticjob.operator.plan import Plan
from elasticjob.rendezvous.orders import RunState
from tests.unit.operator.world import CrashError, World

SEEDS = range(100)
MOST_KILLS = 4
DRAINED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]


class Mortal(World):
    """A world whose operator dies at given moments, counted from the beginning of the life."""

    def __init__(self, kills: frozenset[int] = frozenset(), **spec: Any) -> None:
        super().__init__(**spec)
        self.kills = kills
        self.moments = 0
        self.deaths = 0
        self.accounts: set[str] = set()

    def settle(self, limit: int = 30) -> Plan:
        for _ in range(len(self.kills) + 1):
            try:
                return super().settle(limit)
            except CrashError:
                self.deaths += 1
                self._succeed()
        raise AssertionError("killed more often than there are kills")

    def _succeed(self) -> None:
        """Another operator begins; it has to read the state of the rendezvous before it serves it."""
        view, self.view = self.view, None
        self.problems, self.node_events = (), {}
        try:
            self.step()
        except CrashError:
            self.deaths += 1
            self.view = view
            return self._succeed()
        assert view is not None
        self.view = replace(view, epoch=view.epoch + 1)
        return None

    def _moment(self) -> None:
        self.moments += 1
        if self.moments in self.kills:
            raise CrashError

    def _act(self, action: object) -> None:
        self._moment()
        super()._act(action)
        self._moment()

    def _store(self, made: Plan) -> None:
        assert made.status is not None
        self._moment()
        self._write(made.status)
        self.accounts |= made.status["ledger"].keys()
        self._moment()
        self.events.extend(made.events)

    @property
    def ledger(self) -> Ledger:
        return ElasticJobStatus.from_dict(self.status).ledger

    def members(self) -> list[int]:
        """Indexes of the nodes that the job has, without the spare."""
        return sorted(self.ledger.indexes)[: self.body["spec"]["replicas"]]

    def train(self) -> None:
        """All nodes start, and a round forms."""
        self.settle()
        self.later(70)
        self.settle()
        self.run(*self.ledger.indexes)
        self.form(*self.members())
        self.settle()

    def finish_deletions(self) -> None:
        for name in [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]:
            del self.pods[name]
        self.settle()


def grows(world: Mortal) -> None:
    world.spec(replicas=5)
    world.train()


def one_fails(world: Mortal) -> None:
    world.exit(1, 1)
    world.train()


def three_fail_together(world: Mortal) -> None:
    for index in (0, 2, 3):
        world.exit(index, 137)
    world.train()


def one_vanishes(world: Mortal) -> None:
    world.vanish(4)
    world.train()


def one_is_restarted_in_place(world: Mortal) -> None:
    world.exit_in_place(0, 1)
    world.settle()
    world.restart_in_place(0)
    world.settle()
    world.form(*world.members())
    world.settle()


def one_is_drained(world: Mortal) -> None:
    world.pod(2)["status"]["conditions"] = DRAINED
    world.settle()
    world.mark_deleted(2)
    world.form(0, 1, 3, 4)
    world.settle()
    world.finish_deletions()
    world.train()


def a_machine_is_lost(world: Mortal) -> None:
    stamp = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.pod(3)["status"]["conditions"] = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False", "lastTransitionTime": stamp},
    ]
    world.wait(0, 1, 2, 4, state=RunState.REFORMING)
    world.later(15)
    world.settle()
    world.finish_deletions()
    world.train()


def one_fails_again_and_again(world: Mortal) -> None:
    for _ in range(3):
        pod = world.pod(1)
        pod["metadata"]["creationTimestamp"] = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        pod["spec"]["nodeName"] = "machine-7"
        world.exit(1, 1)
        world.settle()
        world.later(70)
        world.settle()


def is_suspended_and_resumed(world: Mortal) -> None:
    world.spec(suspend=True)
    world.settle()
    world.finish_deletions()
    world.spec(suspend=False)
    world.train()


def shrinks(world: Mortal) -> None:
    world.pod(0)["metadata"]["annotations"] = {"elasticjob.dev/leave-first": "true"}
    world.spec(replicas=2)
    world.settle()
    world.finish_deletions()
    world.train()


LIFE: tuple[Callable[[Mortal], None], ...] = (
    Mortal.train,
    grows,
    one_fails,
    three_fail_together,
    one_vanishes,
    one_is_restarted_in_place,
    one_is_drained,
    a_machine_is_lost,
    one_fails_again_and_again,
    Mortal.train,
    is_suspended_and_resumed,
    shrinks,
)


def succeeds(world: Mortal) -> None:
    for index in world.members():
        world.exit(index, 0)
    world.settle()
    world.later(30)
    world.settle()
    world.finish_deletions()


def is_deleted(world: Mortal) -> None:
    created = len(world.created)
    world.body["metadata"]["deletionTimestamp"] = "2030-01-01T13:00:00Z"
    world.vanish(world.members()[0])
    world.settle()
    assert len(world.created) == created


ENDS = {"succeeds": succeeds, "is deleted": is_deleted}


def live(end: str, kills: frozenset[int] = frozenset()) -> Mortal:
    world = Mortal(kills, replicas=3, minReplicas=1, maxReplicas=6, spares=1, restartPolicy={"maxRestarts": 50})
    for chapter in (*LIFE, ENDS[end]):
        chapter(world)
        assert_whole(world)
    return world


def assert_whole(world: Mortal) -> None:
    """Exactly the pods that are wanted, one for each node."""
    counting = Counter(indexes_that_count(world))
    assert set(counting.values()) <= {1}
    over = world.status["phase"] in ("Succeeded", "Terminating")
    assert over or counting.keys() == world.ledger.indexes


def indexes_that_count(world: Mortal) -> Iterator[int]:
    for pod in world.pods.values():
        labels = pod["metadata"]["labels"]
        index, attempt = int(labels["elasticjob.dev/node-index"]), int(labels["elasticjob.dev/attempt"])
        if attempt >= world.ledger.ended.get(index, 0):
            yield index


@cache
def undisturbed(end: str) -> Mortal:
    return live(end)


def moments_of(seed: int, end: str) -> frozenset[int]:
    chance = random.Random(seed)
    return frozenset(chance.sample(range(1, undisturbed(end).moments + 1), chance.randint(1, MOST_KILLS)))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_operator_that_is_killed_leaves_what_one_leaves_that_never_died(seed: int) -> None:
    end = list(ENDS)[seed % len(ENDS)]
    reference = undisturbed(end)
    world = live(end, moments_of(seed, end))
    assert world.deaths
    assert world.names() == reference.names()
    assert Counter(world.created) == Counter(reference.created)
    assert world.status["ledger"] == reference.status["ledger"]
    assert world.status["restarts"] == reference.status["restarts"]
    assert [one["to"] for one in world.status["history"]] == [one["to"] for one in reference.status["history"]]
    assert Counter(event.message for event in world.events) <= Counter(event.message for event in reference.events)


@pytest.mark.parametrize("end", ENDS)
def test_the_life_touches_every_account(end: str) -> None:
    whole = {field.name for field in fields(Ledger)}
    touched = {re.sub("([A-Z])", r"_\1", name).lower() for name in undisturbed(end).accounts}
    assert whole - touched == ({"completed"} if end == "is deleted" else set())
