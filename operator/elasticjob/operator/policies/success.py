"""When a job has succeeded: when the group of the newest round has.

Nodes outside that group do not matter: one that was asked for but came when the others had finished (a scale-up in the
last minute) must not keep the job open for ever. If no round ever formed, all nodes of the job are the group.
"""

from collections.abc import Set

from elasticjob.operator import constants
from elasticjob.operator.policies.verdict import Verdict


def success(policy: str, *, group: Set[int], rank_zero: int | None, completed: Set[int]) -> Verdict | None:
    """The verdict, or None while there is none.

    Args:
        policy: `All`, `RankZero` or `Any`.
        group: Indexes of the nodes in the newest round.
        rank_zero: Index of the node with rank 0; None for the lowest index.
        completed: Nodes whose worker has succeeded.
    """
    if not group:
        return None
    first = min(group) if rank_zero is None else rank_zero
    if policy == "All" and group <= completed:
        return _verdict(constants.REASON_ALL_SUCCEEDED, f"{_all(len(group))} of the last round succeeded")
    if policy == "RankZero" and first in completed:
        return _verdict(constants.REASON_RANK_ZERO_SUCCEEDED, f"the node with rank 0 (index {first}) succeeded")
    if policy == "Any" and group & completed:
        return _verdict(constants.REASON_ANY_SUCCEEDED, f"the node with index {min(group & completed)} succeeded")
    return None


def _all(nodes: int) -> str:
    return "the only node" if nodes == 1 else f"all {nodes} nodes"


def _verdict(reason: str, message: str) -> Verdict:
    return Verdict(succeeded=True, reason=reason, message=message)
