"""Whose job it is."""

import pytest

from elasticjob.operator.policies.management import is_ours


@pytest.mark.parametrize(
    ("managed_by", "ours"),
    [
        ("", True),
        ("elasticjob.dev/operator", True),
        ("elasticjob.dev/other", False),
        ("kueue.x-k8s.io/multikueue", False),
    ],
)
def test_a_job_is_ours_if_it_names_us_or_nobody(managed_by: str, ours: bool) -> None:
    assert is_ours(managed_by) is ours
