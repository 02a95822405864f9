"""Which nodes the job has: the indexes that fit the wanted number.

Growing takes the lowest free indexes. Shrinking lets go first of nodes that the user has marked, then of those that do
not train yet, then of the highest indexes, and last of nodes that have succeeded. Who stays keeps its index.
"""

from collections.abc import Iterable, Set

from elasticjob.operator.constants import MAX_REPLICAS


def choose_indexes(
    current: Iterable[int], wanted: int, *, ready: Set[int], completed: Set[int], marked: Set[int] = frozenset()
) -> frozenset[int]:
    """The indexes of the job.

    Args:
        current: The indexes it has.
        wanted: How many it should have.
        ready: Nodes that take part in training.
        completed: Nodes that have succeeded.
        marked: Nodes that the user wants to leave first.
    """
    chosen = set(current)
    free = (index for index in range(2 * MAX_REPLICAS) if index not in chosen)
    while len(chosen) < wanted:
        chosen.add(next(free))
    leaving = sorted(chosen, key=lambda index: (index not in marked, index in completed, index in ready, -index))
    return frozenset(chosen.difference(leaving[: len(chosen) - wanted]))
