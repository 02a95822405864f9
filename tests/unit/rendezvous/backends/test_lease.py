"""When a Lease may be taken: decided on our own clock alone. (Who gets it is tested on a real API server.)"""

from typing import Any

import pytest

from elasticjob.rendezvous.backends.lease import LeaseEpoch, LeaseView, Observation, may_take, observe, view_of

VIEW = LeaseView(version=("uid", "1"), holder="a", duration=15, epoch=3)


class NoLeases:
    """A port that must not be used."""

    def read(self, name: str) -> dict[str, Any] | None:
        raise AssertionError

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError


def test_the_clock_of_a_lease_starts_when_we_first_see_it() -> None:
    assert observe(None, VIEW, 100) == Observation(view=VIEW, since=100)


def test_seeing_the_same_lease_again_does_not_restart_its_clock() -> None:
    seen = observe(None, VIEW, 100)
    assert observe(seen, VIEW, 110) is seen


@pytest.mark.parametrize("version", [("uid", "2"), ("other", "1")])
def test_any_change_restarts_the_clock(version: tuple[str, str]) -> None:
    changed = LeaseView(version=version, holder="a", duration=15, epoch=3)
    assert observe(observe(None, VIEW, 100), changed, 110).since == 110


@pytest.mark.parametrize(("now", "free"), [(100, False), (114.9, False), (115, True), (1000, True)])
def test_a_lease_is_free_after_its_duration_without_change(now: float, free: bool) -> None:
    assert may_take(observe(None, VIEW, 100), now) is free


def test_a_released_lease_is_free_at_once() -> None:
    released = LeaseView(version=("uid", "1"), holder="", duration=15, epoch=3)
    assert may_take(observe(None, released, 100), 100)


def test_fields_that_are_not_set_are_read_as_none() -> None:
    metadata = {"uid": "u", "resourceVersion": "1"}
    expected = LeaseView(version=("u", "1"), holder="", duration=0, epoch=0)
    empty = {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None}
    assert view_of({"metadata": metadata}) == expected
    assert view_of({"metadata": metadata, "spec": empty}) == expected


@pytest.mark.parametrize("deadline", [0, -1, 15, 16])
def test_a_renew_deadline_that_is_not_below_the_duration_is_refused(deadline: float) -> None:
    with pytest.raises(ValueError, match=rf"renew_deadline must be .* less than duration 15, not {deadline}"):
        LeaseEpoch(NoLeases(), name="x", identity="a", duration=15, renew_deadline=deadline)


def test_a_contender_needs_an_identity() -> None:
    with pytest.raises(ValueError, match="identity"):
        LeaseEpoch(NoLeases(), name="x", identity="")


def test_who_never_held_a_lease_has_nothing_to_release_and_no_epoch() -> None:
    contender = LeaseEpoch(NoLeases(), name="x", identity="a")
    contender.release()
    assert contender.epoch is None
