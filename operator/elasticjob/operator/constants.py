"""Every name that the operator and its users share: kinds, labels, condition types, reasons.

A reason is part of the API: tools match on it, so it stands here once and never changes its meaning.
"""

from typing import Final

GROUP: Final = "elasticjob.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ElasticJob"
PLURAL: Final = "elasticjobs"

CONTROLLER: Final = f"{GROUP}/operator"
"""How `spec.managedBy` names this operator."""

MAX_NAME_LENGTH: Final = 48
"""Longest job name: `<job>-<index>-<attempt>` and `<job>-rendezvous` must fit 63 characters."""
MAX_REPLICAS: Final = 10_000
MAX_SPARES: Final = 1_000
MAX_WAIT_SECONDS: Final = 604_800
"""Longest wait for all wanted nodes: a week."""

# Labels and annotations.
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "elasticjob"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
LABEL_NODE_INDEX: Final = f"{GROUP}/node-index"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
ANNOTATION_CA_BUNDLE: Final = f"{GROUP}/ca-bundle"
"""On a worker pod: the PEM certificates that the rendezvous server is checked against."""
ANNOTATION_LEAVE_FIRST: Final = f"{GROUP}/leave-first"
"""On a worker pod: "true" if it is to leave first when the job shrinks."""

# What is added to a worker pod.
INJECT_CONTAINER: Final = "elasticjob-inject"
LIBRARY_VOLUME: Final = "elasticjob"
LIBRARY_PATH: Final = "/elasticjob/lib"
IDENTITY_VOLUME: Final = "elasticjob-identity"
IDENTITY_PATH: Final = "/elasticjob/identity"
ROUND_VOLUME: Final = "elasticjob-round"
ROUND_PATH: Final = "/elasticjob/round"
TOKEN_AUDIENCE: Final = f"{GROUP}/rendezvous"
TOKEN_SECONDS: Final = 3600
WORKER_CONTAINER: Final = "worker"
"""The container that is taken for the worker if the spec names none."""

# Names of the conditions.
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
RENDEZVOUS_READY: Final = "RendezvousReady"
CONDITION_TYPES: Final = (READY, RECONCILING, STALLED, SUCCEEDED, FAILED, SUSPENDED, RENDEZVOUS_READY)

# Values of `status.phase`, which exists for the print column alone.
PHASE_PENDING: Final = "Pending"
PHASE_FORMING: Final = "Forming"
PHASE_RUNNING: Final = "Running"
PHASE_REFORMING: Final = "Reforming"
PHASE_SUSPENDED: Final = "Suspended"
PHASE_SUCCEEDED: Final = "Succeeded"
PHASE_FAILED: Final = "Failed"
PHASE_TERMINATING: Final = "Terminating"

# States of a node, those of the RdzvEvents.
NODE_INIT: Final = "INIT"
NODE_RUNNING: Final = "RUNNING"
NODE_SUCCEEDED: Final = "SUCCEEDED"
NODE_FAILED: Final = "FAILED"

NODE_SPARE: Final = "Spare"
"""Reason of a node that waits beyond the wanted size."""

# Reasons of conditions. Those of a run.
REASON_WAITING_FOR_NODES: Final = "WaitingForNodes"
REASON_LAST_CALL: Final = "LastCall"
REASON_ROUND_FORMED: Final = "RoundFormed"
REASON_REFORMING: Final = "Reforming"
REASON_NOT_SERVED: Final = "NotServed"
REASON_HELD: Final = "HoldingMembership"
REASON_CLOSED: Final = "Closed"
# Those of progress and of obstacles.
REASON_STARTING: Final = "Starting"
REASON_SCALING: Final = "Scaling"
REASON_SETTLED: Final = "Settled"
REASON_CREATION_REFUSED: Final = "CreationRefused"
REASON_PREDECESSOR: Final = "PredecessorRemains"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_IMAGE_PULL: Final = "ImagePullFailed"
REASON_CONTAINER_NOT_STARTED: Final = "ContainerNotStarted"
REASON_NO_CALLER: Final = "NoCaller"
REASON_AS_EXPECTED: Final = "AsExpected"
REASON_NOT_FINISHED: Final = "NotFinished"
REASON_DELETED: Final = "Deleted"
# Those of an end.
REASON_ALL_SUCCEEDED: Final = "AllNodesSucceeded"
REASON_RANK_ZERO_SUCCEEDED: Final = "RankZeroSucceeded"
REASON_ANY_SUCCEEDED: Final = "AnyNodeSucceeded"
REASON_MAX_RESTARTS: Final = "MaxRestartsExceeded"
REASON_FAILURE_RULE: Final = "FailureRule"
REASON_RENDEZVOUS_FAILED: Final = "RendezvousFailed"
REASON_ACTIVE_DEADLINE: Final = "ActiveDeadlineExceeded"
REASON_STARTUP_DEADLINE: Final = "StartupDeadlineExceeded"
REASON_INVALID_TEMPLATE: Final = "InvalidTemplate"
REASON_INVALID_SPEC: Final = "InvalidSpec"
REASON_SUSPENDED: Final = "SuspendedBySpec"
REASON_RUNNING: Final = "NotSuspended"

# Reasons why a pod ended, where the API has none.
POD_COMPLETED: Final = "Completed"
POD_ERROR: Final = "Error"
POD_INIT_FAILED: Final = "InitContainerFailed"
POD_DELETED: Final = "PodDeleted"
POD_GONE: Final = "PodGone"
POD_NODE_LOST: Final = "NodeLost"
POD_JOB_FINISHED: Final = "JobFinished"

# Reasons of Events.
EVENT_STARTED: Final = "JobStarted"
EVENT_POD_FAILED: Final = "NodeFailed"
EVENT_POD_LOST: Final = "NodeDisrupted"
EVENT_NODE_SUCCEEDED: Final = "NodeSucceeded"
EVENT_SCALED: Final = "Scaled"
EVENT_SUSPENDED: Final = "JobSuspended"
EVENT_RESUMED: Final = "JobResumed"
EVENT_SUCCEEDED: Final = "JobSucceeded"
EVENT_FAILED: Final = "JobFailed"
EVENT_OBSTACLE: Final = "Obstacle"

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
