"""Jobs of other controllers."""

from typing import Any

import pytest

from elasticjob.operator.plan import Plan
from tests.unit.operator.world import World, running

OTHER = "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize("spec", [{}, {"suspend": True}, {"replicas": "damaged"}])
def test_nothing_at_all_is_done_with_the_job_of_another_controller(spec: dict[str, Any]) -> None:
    assert World(managedBy=OTHER, **spec).plan() == Plan()


def test_not_even_a_job_that_is_over_or_being_deleted_is_touched() -> None:
    world = running(2)
    world.spec(managedBy=OTHER, ttlSecondsAfterFinished=0)
    world.exit(0)
    world.exit(1)
    world.body["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert world.plan() == Plan()


def test_a_job_that_names_this_operator_runs() -> None:
    assert running(2, managedBy="elasticjob.dev/operator").status["phase"] == "Running"
