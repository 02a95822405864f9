"""What was observed and decided: `status` of an ElasticJob as frozen data.

The status is the only memory of the reconciler. Reading it is forgiving: this program wrote it, and a part that
somebody damaged counts as absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.operator.model.fields import mapping, mappings, number, optional_number, parsed, text, without_empty
from elasticjob.operator.model.indexes import format_indexes, parse_indexes
from elasticjob.operator.model.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Condition":
        """Read a condition."""
        return cls(
            type=text(data, "type"),
            status=text(data, "status"),
            reason=text(data, "reason"),
            message=text(data, "message"),
            observed_generation=number(data, "observedGeneration"),
            last_transition_time=text(data, "lastTransitionTime"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: all fields but `observedGeneration` are required by convention."""
        return {
            "type": self.type,
            "status": self.status,
            "observedGeneration": self.observed_generation,
            "lastTransitionTime": self.last_transition_time,
            "reason": self.reason,
            "message": self.message,
        }


@dataclass(frozen=True, kw_only=True)
class LastFailure:
    """How the attempt before the present one ended, which was not by success."""

    pod: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LastFailure":
        """Read a failure."""
        return cls(
            pod=text(data, "pod"),
            reason=text(data, "reason"),
            message=text(data, "message"),
            exit_code=optional_number(data, "exitCode"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return without_empty(
            {"pod": self.pod, "reason": self.reason, "message": self.message, "exitCode": self.exit_code},
            keep=("exitCode",),
        )


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node of the job.

    Args:
        name: `<job>-<index>`, the host name of its pod.
        state: INIT, RUNNING, SUCCEEDED or FAILED, as in RdzvEvents.
        rank: Rank in the newest round it was in, None before.
        restarts: How many of its attempts are over.
        node: The cluster node that its pod is on.
        exit_code: Of the worker container, once it has ended.
    """

    name: str
    index: int
    state: str
    restarts: int = 0
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    rank: int | None = None
    round: int | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    last_failure: LastFailure | None = None
    last_transition_time: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "NodeStatus":
        """Read a node."""
        failure = mapping(data, "lastFailure")
        return cls(
            name=text(data, "name"),
            index=number(data, "index"),
            state=text(data, "state"),
            restarts=number(data, "restarts"),
            pod=text(data, "pod"),
            pod_uid=text(data, "podUID"),
            node=text(data, "node"),
            rank=optional_number(data, "rank"),
            round=optional_number(data, "round"),
            reason=text(data, "reason"),
            message=text(data, "message"),
            exit_code=optional_number(data, "exitCode"),
            last_failure=LastFailure.from_dict(failure) if failure else None,
            last_transition_time=text(data, "lastTransitionTime"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form. Unknown parts are left out, numbers that are 0 are not."""
        return without_empty(
            {
                "name": self.name,
                "index": self.index,
                "state": self.state,
                "restarts": self.restarts,
                "pod": self.pod,
                "podUID": self.pod_uid,
                "node": self.node,
                "rank": self.rank,
                "round": self.round,
                "reason": self.reason,
                "message": self.message,
                "exitCode": self.exit_code,
                "lastFailure": self.last_failure.to_dict() if self.last_failure else None,
                "lastTransitionTime": self.last_transition_time,
            },
            keep=("index", "restarts", "rank", "round", "exitCode"),
        )


@dataclass(frozen=True, kw_only=True)
class RendezvousStatus:
    """The rendezvous as last heard of.

    Args:
        participants: How many nodes are in the newest formed round.
        waiting: How many nodes have joined the open round or wait for the next.
        deadline: When the open round completes or fails; a stamp.
        members: Indexes of the nodes in the newest formed round.
        rank_zero: Index of its rank 0.
    """

    run_id: str = ""
    backend: str = ""
    epoch: int = 0
    round: int = 0
    state: str = ""
    participants: int = 0
    waiting: int = 0
    deadline: str = ""
    cause: str = ""
    members: frozenset[int] = frozenset()
    rank_zero: int | None = None
    worker_failures: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RendezvousStatus":
        """Read the rendezvous."""
        return cls(
            run_id=text(data, "runId"),
            backend=text(data, "backend"),
            epoch=number(data, "epoch"),
            round=number(data, "round"),
            state=text(data, "state"),
            participants=number(data, "participants"),
            waiting=number(data, "waiting"),
            deadline=text(data, "deadline"),
            cause=text(data, "cause"),
            members=parsed(data, "members", parse_indexes, frozenset()),
            rank_zero=optional_number(data, "rankZero"),
            worker_failures=number(data, "workerFailures"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return without_empty(
            {
                "runId": self.run_id,
                "backend": self.backend,
                "epoch": self.epoch,
                "round": self.round,
                "state": self.state,
                "participants": self.participants,
                "waiting": self.waiting,
                "deadline": self.deadline,
                "cause": self.cause,
                "members": format_indexes(self.members),
                "rankZero": self.rank_zero,
                "workerFailures": self.worker_failures,
            },
            keep=("round", "participants", "waiting", "rankZero"),
        )


@dataclass(frozen=True, kw_only=True)
class ElasticJobStatus:
    """The stored state of a job. `history` is kept as it was read: it is only ever appended to and cut."""

    phase: str = ""
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[Condition, ...] = ()
    rendezvous: RendezvousStatus = RendezvousStatus()
    nodes: tuple[NodeStatus, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    ledger: Ledger = field(default_factory=Ledger)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ElasticJobStatus":
        """Read a status. It was written by this program: what cannot be understood counts as absent."""
        return cls(
            phase=text(data, "phase"),
            start_time=text(data, "startTime"),
            completion_time=text(data, "completionTime"),
            conditions=tuple(map(Condition.from_dict, mappings(data, "conditions"))),
            rendezvous=RendezvousStatus.from_dict(mapping(data, "rendezvous")),
            nodes=tuple(map(NodeStatus.from_dict, mappings(data, "nodes"))),
            history=tuple(mappings(data, "history")),
            ledger=Ledger.from_dict(mapping(data, "ledger")),
        )

    def condition(self, type_: str) -> Condition | None:
        """The condition of a type, None if it was never set."""
        return next((one for one in self.conditions if one.type == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition of a type is True."""
        condition = self.condition(type_)
        return condition is not None and condition.status == "True"
