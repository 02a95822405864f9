"""What a plan asks for. Plain data; `reconcile` carries it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from elasticjob.rendezvous.orders import RunOrders


@dataclass(frozen=True, kw_only=True)
class CreatePod:
    """Create a worker pod. A pod of this name that exists already is the wanted one: its name is never reused."""

    index: int
    attempt: int
    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class DeletePod:
    """Delete exactly this pod (precondition on the UID). `grace` in seconds; None for the pod's own."""

    name: str
    uid: str
    reason: str
    grace: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateService:
    """Create the headless Service of the job."""

    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CreateDisruptionBudget:
    """Create the PodDisruptionBudget of the job."""

    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class UpdateDisruptionBudget:
    """Replace the PodDisruptionBudget of the job, in exactly the version that was read."""

    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class DeleteDisruptionBudget:
    """Delete the PodDisruptionBudget of the job (precondition on the UID)."""

    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class DeleteJob:
    """Delete the job object itself, since its time to live is over (precondition on the UID)."""

    name: str
    uid: str


Action: TypeAlias = (
    CreatePod
    | DeletePod
    | CreateService
    | CreateDisruptionBudget
    | UpdateDisruptionBudget
    | DeleteDisruptionBudget
    | DeleteJob
)


@dataclass(frozen=True, kw_only=True)
class EventFact:
    """Something to tell the user. `pod` and `pod_uid` name the related pod, empty if none."""

    type: str
    reason: str
    message: str
    action: str = "Reconcile"
    pod: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decision about one job, made from one observation.

    Args:
        charge_first: The status records something that the actions and orders rely on (a counted failure, the chosen
            nodes, an end). It must be stored before any of them is carried out; if storing fails, none may be. When
            False, orders and actions need not wait for the status write.
        status: The whole new status, or None when it does not differ from the stored one.
        actions: To be carried out in this order; those of one type may run side by side.
        orders: For the rendezvous; None when it has nothing to host for this job (any more): forget the run.
        events: To be shown once the status is stored.
        requeue_after: Seconds until the job must be planned again without any outside trigger, or None.
    """

    charge_first: bool = False
    status: Mapping[str, Any] | None = None
    actions: tuple[Action, ...] = ()
    orders: RunOrders | None = None
    events: tuple[EventFact, ...] = ()
    requeue_after: float | None = None
