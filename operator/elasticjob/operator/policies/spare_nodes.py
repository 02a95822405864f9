"""Nodes beyond the wanted size, which wait and step in when a member of the group is lost.

The rendezvous admits as many members as are wanted; further nodes that have joined wait without disturbing anybody, and
one of them has the free place at once. A group that is larger than wanted, since the job was made smaller, lets go of
its highest indexes, which become spares.
"""

from collections.abc import Collection


def pods_wanted(*, size: int, spares: int) -> int:
    """How many nodes the job has in all."""
    return size + spares


def places(*, size: int, spares: int, most: int) -> int:
    """Most members of a round. Without spares this is the job's limit, with them it is the wanted size.

    Args:
        size: Wanted number of nodes.
        spares: Nodes beyond it.
        most: Most nodes that train, as the spec has it.
    """
    return size if spares else most


def counted_replicas(living: int, *, size: int) -> int:
    """How many of the living pods count towards `spec.replicas`: autoscalers compare the two.

    Any of the pods may be a spare until a round has formed, and a spare may become a member at any time; what lasts is
    that no more than the wanted number are needed.
    """
    return min(living, size)


def surplus(members: Collection[int], *, size: int, spares: int) -> frozenset[int]:
    """Members of the round that are to become spares."""
    beyond = max(0, len(members) - size) if spares else 0
    return frozenset(sorted(members, reverse=True)[:beyond])
