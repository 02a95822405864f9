"""Owner and epoch by a Lease, on a real API server; only the clocks of the contenders are made."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes.client import CoordinationV1Api

from elasticjob.rendezvous.backends.kubernetes_client import OfficialLeases
from elasticjob.rendezvous.backends.kubernetes_objects import Conflict
from elasticjob.rendezvous.backends.lease import LeaseEpoch
from tests.integration.rendezvous.harness import KubernetesHarness

DURATION = 15


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Contest:
    """Contenders for one Lease."""

    def __init__(self, harness: KubernetesHarness) -> None:
        self.leases = OfficialLeases(harness.access)
        self.api = CoordinationV1Api(harness.access.api)
        self.namespace = harness.namespace

    def contender(self, identity: str, clock: Clock, **options: Any) -> LeaseEpoch:
        return LeaseEpoch(self.leases, name="operator", identity=identity, duration=DURATION, clock=clock, **options)

    def spec(self) -> dict[str, Any]:
        body = self.leases.read("operator")
        assert body is not None
        return dict(body["spec"])


@pytest.fixture
def contest(kubernetes_harness: KubernetesHarness) -> Iterator[Contest]:
    made = Contest(kubernetes_harness)
    made.api.delete_collection_namespaced_lease(made.namespace)
    yield made
    made.api.delete_collection_namespaced_lease(made.namespace)


def test_the_first_to_come_owns_the_lease_with_epoch_1(contest: Contest) -> None:
    first = contest.contender("a", Clock())
    assert first.epoch is None
    assert first.try_hold() == 1
    assert first.epoch == 1
    assert contest.spec()["holderIdentity"] == "a"
    assert contest.spec()["leaseTransitions"] == 1


def test_renewals_keep_the_epoch_and_the_others_out(contest: Contest) -> None:
    ours, theirs = Clock(), Clock(5.0)
    owner, other = contest.contender("a", ours), contest.contender("b", theirs)
    owner.try_hold()
    for _ in range(10):
        ours.now += 5
        theirs.now += 5
        assert owner.try_hold() == 1
        assert other.try_hold() is None


def test_an_owner_that_stops_renewing_loses_the_lease_before_anybody_else_gets_it(contest: Contest) -> None:
    ours, theirs = Clock(), Clock(5.0)
    owner, other = contest.contender("a", ours), contest.contender("b", theirs)
    owner.try_hold()
    assert other.try_hold() is None
    ours.now += 10
    theirs.now += 10
    assert owner.epoch is None
    assert other.try_hold() is None
    theirs.now += 5
    assert other.try_hold() == 2
    assert owner.try_hold() is None
    assert contest.spec()["leaseTransitions"] == 2


def test_a_contender_that_has_just_come_waits_a_whole_duration_however_old_the_lease_says_it_is(
    contest: Contest,
) -> None:
    contest.contender("a", Clock()).try_hold()
    body = contest.leases.read("operator")
    assert body is not None
    body["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
    contest.leases.replace(body)
    clock = Clock()
    other = contest.contender("b", clock)
    assert other.try_hold() is None
    clock.now += DURATION - 1
    assert other.try_hold() is None
    clock.now += 1
    assert other.try_hold() == 2


def test_a_released_lease_is_taken_at_once_with_a_new_epoch(contest: Contest) -> None:
    owner, other = contest.contender("a", Clock()), contest.contender("b", Clock())
    owner.try_hold()
    owner.release()
    assert owner.epoch is None
    assert other.try_hold() == 2
    owner.release()
    assert contest.spec()["holderIdentity"] == "b"


def test_of_many_contenders_exactly_one_gets_each_epoch(contest: Contest) -> None:
    clock = Clock()
    contenders = [contest.contender(f"c{n}", clock) for n in range(8)]
    for round_number in range(1, 4):
        with ThreadPoolExecutor(8) as pool:
            epochs = list(pool.map(lambda contender: contender.try_hold(), contenders))
        assert [epoch for epoch in epochs if epoch is not None] == [round_number]
        # The owner dies; all others have seen its Lease.
        del contenders[epochs.index(round_number)]
        assert [contender.try_hold() for contender in contenders] == [None] * len(contenders)
        clock.now += DURATION


def test_a_late_write_of_a_former_owner_is_refused_by_the_server(contest: Contest) -> None:
    ours, theirs = Clock(), Clock()
    owner, other = contest.contender("a", ours), contest.contender("b", theirs)
    owner.try_hold()
    stale = contest.leases.read("operator")
    assert stale is not None
    other.try_hold()
    theirs.now += DURATION
    assert other.try_hold() == 2
    with pytest.raises(Conflict):
        contest.leases.replace(stale)


def test_a_process_of_the_same_name_is_somebody_else(contest: Contest) -> None:
    contest.contender("a", Clock()).try_hold()
    clock = Clock()
    restarted = contest.contender("a", clock)
    assert restarted.try_hold() is None
    clock.now += DURATION
    assert restarted.try_hold() == 2


def test_a_note_by_somebody_else_does_not_cost_the_owner_its_epoch(contest: Contest) -> None:
    owner = contest.contender("a", Clock())
    owner.try_hold()
    contest.api.patch_namespaced_lease("operator", contest.namespace, {"metadata": {"annotations": {"note": "x"}}})
    assert owner.try_hold() == 1


def test_the_epoch_does_not_fall_when_the_lease_is_deleted(contest: Contest) -> None:
    clock = Clock()
    owner, other = contest.contender("a", clock), contest.contender("b", clock)
    owner.try_hold()
    owner.release()
    assert other.try_hold() == 2
    contest.api.delete_namespaced_lease("operator", contest.namespace)
    assert other.try_hold() == 3
    contest.api.delete_namespaced_lease("operator", contest.namespace)
    assert contest.contender("c", clock, minimum_epoch=7).try_hold() == 8


def test_a_lease_made_by_others_without_any_field_is_taken(contest: Contest) -> None:
    contest.leases.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator"}, "spec": {}}
    )
    assert contest.contender("a", Clock()).try_hold() == 1
