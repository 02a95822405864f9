"""How many nodes the eviction API must leave to a job.

A job that can shrink keeps its minimum: `kubectl drain` then takes its pods by and by, each when the replacement of the
one before is there. A job that needs all of its nodes has no such budget, since it would block every drain for good;
such a job pauses instead, until the replacement has joined.
"""


def nodes_to_keep(*, least: int, size: int) -> int | None:
    """`minAvailable` of the job's PodDisruptionBudget, or None if it has none.

    Args:
        least: Fewest nodes that train.
        size: Nodes that the job has.
    """
    return least if least < size else None
