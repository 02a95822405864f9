"""One job as a plan understands it: what was observed, read and accounted for. Plain data and questions to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cached_property

from elasticjob.operator.model import ElasticJob, ElasticJobSpec, ElasticJobStatus, Ledger
from elasticjob.operator.model.stamps import format_time, parse_time
from elasticjob.operator.observed import Observed
from elasticjob.operator.pod_facts import PodFacts
from elasticjob.operator.pods import pod_name
from elasticjob.operator.policies.accounting import NodeEnd, current_pods
from elasticjob.operator.policies.obstacles import ApiProblem
from elasticjob.operator.policies.replacement import ends_in_a_row, resting_until
from elasticjob.operator.policies.verdict import Verdict
from elasticjob.rendezvous.orders import NodeView, RunState, RunView


class Stage(str, Enum):
    """Where a job is in its life."""

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    DELETING = "Deleting"


@dataclass(frozen=True)
class Situation:
    """What one planning works with.

    Args:
        pods: All pods that are nodes, by index and attempt.
        ledger: The new ledger.
        ends: Ends of nodes that were put down in this planning.
        verdict: Why the job is over; set exactly in the stage FINISHED.
        start_time: Since when the job runs, a stamp; empty while it does not.
        completion_time: When the job was over, a stamp.
        problems: Refused calls that still matter.
    """

    observed: Observed
    spec: ElasticJobSpec
    stage: Stage
    pods: tuple[PodFacts, ...]
    ledger: Ledger
    ends: tuple[NodeEnd, ...] = ()
    verdict: Verdict | None = None
    start_time: str = ""
    completion_time: str = ""
    problems: tuple[ApiProblem, ...] = ()

    @property
    def job(self) -> ElasticJob:
        """The job."""
        return self.observed.job

    @property
    def before(self) -> ElasticJobStatus:
        """The stored status."""
        return self.observed.job.status

    @cached_property
    def stamp(self) -> str:
        """The present time as a stamp."""
        return format_time(self.observed.now)

    @property
    def view(self) -> RunView | None:
        """What the rendezvous says of this very run, once it has read its state."""
        view = self.heard
        if view is None or not view.taken_over:
            return None
        if view.state is RunState.REFORMING and view.round <= self.ledger.base_round:
            # The round is of the time before the suspension, and so not replaced but begun anew.
            return replace(view, state=RunState.WAITING)
        return view

    @property
    def heard(self) -> RunView | None:
        """What the rendezvous says of this very run, even if that is only why it cannot serve it."""
        view = self.observed.view
        return view if view is not None and view.run_id == self.job.uid else None

    @cached_property
    def formed(self) -> bool:
        """Whether a round is complete and trains now."""
        view = self.view
        return view is not None and view.state is RunState.FORMED and view.round > self.ledger.base_round

    @cached_property
    def current(self) -> Mapping[int, PodFacts]:
        """The pod of each node that counts."""
        return current_pods(self.ledger, self.pods)

    def rest(self, index: int) -> str:
        """Why a node that ended again and again has no pod yet, for people; empty if it does not rest."""
        if self.stage is not Stage.ACTIVE or index in self.current or index in self.ledger.completed:
            return ""
        until = resting_until(self.ledger, index, moment(self.ledger.charged_at))
        if until is None or until <= self.observed.now:
            return ""
        times = ends_in_a_row(self.ledger, index)
        return f"rests until {format_time(until)}, since it ended {times} times in a row"

    def target(self, index: int) -> str:
        """How a refusal names the pod that the node is to get."""
        return f"Pod/{pod_name(self.job.name, index, self.ledger.ended.get(index, 0))}"

    def is_refused(self, target: str) -> bool:
        """Whether the API server refused this a moment ago; it is tried again after a pause."""
        now = self.observed.clock
        return any(one.target == target and one.retry_at > now for one in self.observed.problems)

    @cached_property
    def blocked(self) -> frozenset[int]:
        """Wanted nodes that are not in and cannot come by themselves: their pod is refused or cannot start."""
        wanted = self.ledger.unfinished
        refused = {problem.target for problem in self.problems if not problem.passes}
        stuck = {index for index, pod in self.current.items() if pod.obstacle and pod.uid not in self.joined}
        unmade = {index for index in wanted - self.current.keys() if self.target(index) in refused}
        return frozenset(wanted & stuck | unmade)

    @cached_property
    def joined(self) -> Mapping[str, NodeView]:
        """By pod UID: members while a round trains, else the nodes that have joined the open round."""
        if self.view is None:
            return {}
        nodes = self.view.participants if self.formed else tuple(node for node in self.view.waiting if node.joined)
        return {node.pod_uid: node for node in nodes}

    @cached_property
    def wanted(self) -> int:
        """How many nodes are to train: all that have not succeeded, but for the spares."""
        return max(0, len(self.ledger.unfinished) - self.spec.spares)

    @property
    def rounding(self) -> str:
        """Said when fewer nodes are wanted than the user asked for; else empty."""
        spec = self.spec
        if spec.size == spec.replicas:
            return ""
        return f"spec.replicas ({spec.replicas}) is rounded down to {spec.size} (stepSize {spec.step_size})"

    @cached_property
    def spares(self) -> frozenset[str]:
        """UIDs of the pods that wait while a round trains without them."""
        return frozenset(node.pod_uid for node in self.view.waiting) if self.view and self.formed else frozenset()

    @cached_property
    def members(self) -> Mapping[str, NodeView]:
        """The members of the newest formed round, by pod UID."""
        return {node.pod_uid: node for node in self.view.participants} if self.view else {}


def moment(stamp: str) -> datetime | None:
    """The moment of a stored stamp; None if it is absent or damaged."""
    try:
        return parse_time(stamp)
    except ValueError:
        return None
