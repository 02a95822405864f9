"""Which machines a replacement should rather avoid, and how the scheduler is told.

A machine on which a pod has just failed or was lost may be at fault, so replacements prefer others. It is a preference
and no demand: where there is no other machine the pod still runs. Machines cool down by count: the last few are
remembered, and further ends elsewhere let the older ones be forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REMEMBERED = 5
"""So many machines are avoided at a time."""
WEIGHT = 100
"""The highest that the API allows."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def suspect(known: Sequence[str], machines: Iterable[str]) -> tuple[str, ...]:
    """The suspects with these machines among them, the newest first."""
    newest = [machine for machine in machines if machine][::-1]
    return tuple(dict.fromkeys([*newest, *known]))[:REMEMBERED]


def averse(affinity: Mapping[str, Any] | None, machines: Iterable[str]) -> dict[str, Any]:
    """The user's affinity with a preference for other machines than these; all that is in it stays.

    A machine is named by its Node's name and not by the label `kubernetes.io/hostname`, which may differ from it.
    """
    whole = dict(affinity or {})
    nodes = dict(whole.get("nodeAffinity") or {})
    nodes[_PREFERRED] = [*(nodes.get(_PREFERRED) or ()), *map(_term, machines)]
    return {**whole, "nodeAffinity": nodes}


def _term(machine: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "NotIn", "values": [machine]}
    return {"weight": WEIGHT, "preference": {"matchFields": [field]}}
