"""Random histories of a job: pods end, users scale and suspend, the operator dies between any two writes.

Whatever the order, some things hold always, and when the storm is over the job comes to rest with what is wanted.
"""

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticjob.operator.model import ElasticJobStatus
from tests.unit.operator.world import CrashError, World

INDEXES = st.integers(min_value=0, max_value=5)


class Schedule(RuleBasedStateMachine):
    """One job in a hostile world."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(replicas=3, minReplicas=1, maxReplicas=6, restartPolicy={"maxRestarts": 1000})
        self.failed_pods: set[str] = set()
        self.rounds = 0

    @property
    def ledger(self) -> Any:
        return ElasticJobStatus.from_dict(self.world.status).ledger

    def living(self) -> list[int]:
        """Indexes whose newest pod has not ended."""
        found: dict[int, dict[str, Any]] = {}
        for pod in self.world.pods.values():
            index = int(pod["metadata"]["labels"]["elasticjob.dev/node-index"])
            found[index] = self.world.pod(index)
        return sorted(
            index
            for index, pod in found.items()
            if pod["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        )

    @rule(writes=st.one_of(st.none(), st.integers(min_value=0, max_value=8)))
    def reconcile(self, writes: int | None) -> None:
        assert self.world.plan() == self.world.plan()
        with contextlib.suppress(CrashError):
            self.world.step(crash_after=writes)

    @rule(seconds=st.sampled_from([0.5, 5.0, 90.0]))
    def wait(self, seconds: float) -> None:
        self.world.later(seconds)

    @precondition(lambda self: self.living())
    @rule(pick=INDEXES)
    def start(self, pick: int) -> None:
        self.world.run(self.living()[pick % len(self.living())])

    @precondition(lambda self: self.living())
    @rule(pick=INDEXES, code=st.sampled_from([1, 137]))
    def fail(self, pick: int, code: int) -> None:
        index = self.living()[pick % len(self.living())]
        self.failed_pods.add(self.world.pod(index)["metadata"]["uid"])
        self.world.exit(index, code)

    @precondition(lambda self: self.living())
    @rule(pick=INDEXES)
    def vanish(self, pick: int) -> None:
        self.world.vanish(self.living()[pick % len(self.living())])

    @precondition(lambda self: self.living())
    @rule(pick=INDEXES)
    def delete(self, pick: int) -> None:
        self.world.mark_deleted(self.living()[pick % len(self.living())])

    @rule()
    def finish_deletions(self) -> None:
        gone = [name for name, pod in self.world.pods.items() if "deletionTimestamp" in pod["metadata"]]
        for name in gone:
            del self.world.pods[name]

    @precondition(lambda self: self.living())
    @rule()
    def form(self) -> None:
        self.rounds += 1
        self.world.form(*self.living())

    @rule(replicas=st.integers(min_value=1, max_value=6))
    def scale(self, replicas: int) -> None:
        self.world.spec(replicas=replicas)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.world.spec(suspend=suspend)

    @invariant()
    def no_pod_name_was_ever_used_again_after_its_end_was_counted(self) -> None:
        ended = self.ledger.ended
        for name in self.world.created:
            index, attempt = (int(part) for part in name.split("-")[1:])
            assert attempt <= ended.get(index, 0) or attempt < self.ledger.seen.get(index, 0)

    @invariant()
    def a_node_has_at_most_one_pod_that_counts(self) -> None:
        ended = self.ledger.ended
        counting: list[int] = []
        for pod in self.world.pods.values():
            labels = pod["metadata"]["labels"]
            index, attempt = int(labels["elasticjob.dev/node-index"]), int(labels["elasticjob.dev/attempt"])
            if attempt >= ended.get(index, 0):
                counting.append(index)
        assert len(counting) == len(set(counting))

    @invariant()
    def no_more_failures_are_counted_than_pods_have_failed(self) -> None:
        assert self.ledger.failures <= len(self.failed_pods)

    def teardown(self) -> None:
        """When nothing happens any more the job comes to rest with exactly the wanted pods."""
        self.world.later(120)
        self.finish_deletions()
        self.world.spec(suspend=False)
        for _ in range(4):
            self.world.settle()
            self.finish_deletions()
            self.world.later(120)
        self.world.settle()
        wanted = self.world.body["spec"]["replicas"]
        indexes = [int(name.split("-")[1]) for name in self.world.names()]
        assert len(indexes) == len(set(indexes)) == wanted
        assert sorted(indexes) == sorted(self.ledger.indexes)
        idle = self.world.plan()
        assert (idle.status, idle.actions, idle.events) == (None, (), ())


TestSchedules = Schedule.TestCase
TestSchedules.settings = settings(max_examples=25, stateful_step_count=30)
