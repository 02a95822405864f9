"""What evictions must leave."""

import pytest

from elasticjob.operator.policies.disruption_budget import nodes_to_keep


@pytest.mark.parametrize(
    ("least", "size", "kept"), [(1, 1, None), (2, 2, None), (1, 2, 1), (6, 8, 6), (8, 8, None), (3, 2, None)]
)
def test_only_a_job_that_can_shrink_keeps_its_minimum(least: int, size: int, kept: int | None) -> None:
    assert nodes_to_keep(least=least, size=size) == kept
