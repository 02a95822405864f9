"""The PodDisruptionBudget of a job, brought to what it should be."""

from collections.abc import Iterable, Mapping
from typing import Any

from elasticjob.operator.actions import Action, CreateDisruptionBudget, DeleteDisruptionBudget, UpdateDisruptionBudget
from elasticjob.operator.pods import build_disruption_budget
from elasticjob.operator.policies.disruption_budget import nodes_to_keep
from elasticjob.operator.situation import Situation, Stage


def protection(situation: Situation) -> Iterable[Action]:
    """What is to be done about it. Only an active job has one."""
    found, wanted = situation.observed.disruption_budget, _wanted(situation)
    if wanted is None:
        if found is not None:
            meta = found["metadata"]
            yield DeleteDisruptionBudget(name=meta["name"], uid=meta["uid"])
    elif found is None:
        if not situation.is_refused(target(situation)):
            yield CreateDisruptionBudget(body=wanted)
    elif not _agrees(found, wanted) and not situation.is_refused(target(situation)):
        yield UpdateDisruptionBudget(body={**found, "spec": wanted["spec"]})


def target(situation: Situation) -> str:
    """Its kind and name."""
    return f"PodDisruptionBudget/{situation.job.name}"


def _wanted(situation: Situation) -> Mapping[str, Any] | None:
    if situation.stage is not Stage.ACTIVE:
        return None
    least = nodes_to_keep(least=situation.spec.min_nodes, size=len(situation.ledger.indexes))
    return None if least is None else build_disruption_budget(situation.job, least)


def _agrees(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Fields that the API server adds are its own business."""
    spec = found.get("spec") or {}
    return "maxUnavailable" not in spec and all(spec.get(name) == value for name, value in wanted["spec"].items())
