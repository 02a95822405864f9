"""How many spares there are, and who becomes one."""

import pytest

from elasticjob.operator.policies.spare_nodes import counted_replicas, places, pods_wanted, surplus


@pytest.mark.parametrize(
    ("size", "spares", "most", "pods", "members"),
    [(2, 0, 2, 2, 2), (2, 0, 8, 2, 8), (2, 1, 8, 3, 2), (8, 2, 8, 10, 8)],
)
def test_spares_have_pods_and_no_place(size: int, spares: int, most: int, pods: int, members: int) -> None:
    assert pods_wanted(size=size, spares=spares) == pods
    assert places(size=size, spares=spares, most=most) == members


@pytest.mark.parametrize(
    ("members", "size", "spares", "beyond"),
    [("012", 3, 1, ""), ("012", 2, 1, "2"), ("135", 1, 1, "35"), ("012", 2, 0, ""), ("", 2, 1, ""), ("0", 2, 1, "")],
)
def test_a_group_that_is_too_large_lets_go_of_the_highest(members: str, size: int, spares: int, beyond: str) -> None:
    assert surplus(set(map(int, members)), size=size, spares=spares) == set(map(int, beyond))


@pytest.mark.parametrize(("living", "counted"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_autoscalers_never_see_more_than_the_wanted_nodes(living: int, counted: int) -> None:
    assert counted_replicas(living, size=2) == counted
