"""What the user wants: `spec` of an ElasticJob as frozen data.

The API server checks the same limits by the schema in `crds/`; they are checked here once more since an object may have
been stored before its schema was tightened, and since a wrong value must become a condition and never a traceback.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model.reader import Reader
from elasticjob.operator.model.rules import FailureRule, read_rules

BACKENDS = ("kubernetes", "etcd", "etcd-v2")
SUCCESS_POLICIES = ("All", "RankZero", "Any")
CLEAN_POD_POLICIES = ("Running", "All", "None")
NPROC_WORDS = ("auto", "gpu", "cpu")


@dataclass(frozen=True, kw_only=True)
class RendezvousSpec:
    """How nodes meet. All times are in seconds and have the meaning and the defaults of torch elastic.

    Args:
        backend: Where the hosted state is kept: `kubernetes`, `etcd` or `etcd-v2`.
        conf: Passed on to the backend.
    """

    backend: str = "kubernetes"
    join_timeout: int = 600
    last_call_timeout: int = 30
    close_timeout: int = 30
    heartbeat_timeout: int = 5
    keep_alive_interval: int = 5
    keep_alive_max_attempts: int = 3
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ElasticJobSpec:
    """The wanted state of a job.

    Args:
        replicas: Wanted number of nodes.
        min_replicas: Fewest nodes that train, as the user wrote it; see `min_nodes`.
        max_replicas: Most nodes that train, as the user wrote it; see `max_nodes`.
        step_size: Groups have a multiple of so many nodes.
        spares: Nodes beyond the wanted number, which wait until one is lost.
        wait_for_replicas: Seconds for which a group that begins anew waits for all wanted nodes before it trains on
            fewer.
        nproc_per_node: Processes a node: a positive number as text, `auto`, `gpu` or `cpu`.
        max_restarts: How many failures are restarted; one more ends the job.
        failure_rules: What ends of pods lead to; the first rule that matches counts.
        template: The PodTemplateSpec exactly as the user wrote it.
        worker_container: Name of the container whose end is the end of the node.
    """

    template: Mapping[str, Any]
    worker_container: str
    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    step_size: int = 1
    spares: int = 0
    wait_for_replicas: int = 0
    nproc_per_node: str = "1"
    rendezvous: RendezvousSpec = RendezvousSpec()
    max_restarts: int = 3
    failure_rules: tuple[FailureRule, ...] = ()
    success_policy: str = "All"
    suspend: bool = False
    active_deadline: int | None = None
    startup_deadline: int | None = None
    ttl_after_finished: int | None = None
    clean_pod_policy: str = "Running"
    inject: bool = True

    @property
    def size(self) -> int:
        """Wanted number of nodes in whole steps."""
        return whole_steps(self.replicas, self.step_size)

    @property
    def min_nodes(self) -> int:
        """Fewest nodes that train: without `minReplicas` all wanted nodes are needed."""
        return self.size if self.min_replicas is None else self.min_replicas

    @property
    def max_nodes(self) -> int:
        """Most nodes that train: without `maxReplicas` it follows `replicas`, so that `kubectl scale` just works."""
        most = self.replicas if self.max_replicas is None else self.max_replicas
        return whole_steps(most, self.step_size)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ElasticJobSpec":
        """Read a spec.

        Raises:
            ModelError: A field has a value that cannot work.
        """
        spec = Reader(data, "spec")
        template = spec.mapping("template")
        result = cls(
            template=template,
            worker_container=_worker_container(spec),
            replicas=spec.integer("replicas", 1, least=1, most=constants.MAX_REPLICAS),
            min_replicas=spec.optional_integer("minReplicas", least=1, most=constants.MAX_REPLICAS),
            max_replicas=spec.optional_integer("maxReplicas", least=1, most=constants.MAX_REPLICAS),
            step_size=spec.integer("stepSize", 1, least=1, most=constants.MAX_REPLICAS),
            spares=spec.integer("spares", 0, most=constants.MAX_SPARES),
            wait_for_replicas=spec.integer("waitForReplicasSeconds", 0, most=constants.MAX_WAIT_SECONDS),
            nproc_per_node=_nproc(spec),
            rendezvous=_rendezvous(spec.within("rendezvous")),
            max_restarts=spec.within("restartPolicy").integer("maxRestarts", 3),
            failure_rules=read_rules(spec.within("restartPolicy")),
            success_policy=spec.choice("successPolicy", "All", SUCCESS_POLICIES),
            suspend=spec.boolean("suspend", False),
            active_deadline=spec.optional_integer("activeDeadlineSeconds", least=1),
            startup_deadline=spec.optional_integer("startupDeadlineSeconds", least=1),
            ttl_after_finished=spec.optional_integer("ttlSecondsAfterFinished"),
            clean_pod_policy=spec.choice("cleanPodPolicy", "Running", CLEAN_POD_POLICIES),
            inject=spec.boolean("inject", True),
        )
        _check_sizes(spec, result)
        _check_wait(spec, result)
        return result


def whole_steps(number: int, step: int) -> int:
    """The largest multiple of the step that the number holds."""
    return number - number % step


def _check_sizes(reader: Reader, spec: ElasticJobSpec) -> None:
    if spec.size == 0:
        raise reader.error("stepSize", f"({spec.step_size}) must not exceed spec.replicas ({spec.replicas})")
    if spec.min_nodes % spec.step_size:
        raise reader.error("minReplicas", f"({spec.min_nodes}) must be a multiple of spec.stepSize ({spec.step_size})")
    if spec.min_nodes > spec.replicas:
        raise reader.error("minReplicas", f"({spec.min_nodes}) must not exceed spec.replicas ({spec.replicas})")
    if spec.max_replicas is not None and spec.max_replicas < spec.replicas:
        raise reader.error("maxReplicas", f"({spec.max_nodes}) must not be less than spec.replicas ({spec.replicas})")


def _check_wait(reader: Reader, spec: ElasticJobSpec) -> None:
    """A wait for all nodes needs something to fall back to, and must be over before the job is."""
    wait = spec.wait_for_replicas
    if wait and spec.min_replicas is None:
        raise reader.error("waitForReplicasSeconds", "needs spec.minReplicas: without it all nodes are always needed")
    limits = {"startupDeadlineSeconds": spec.startup_deadline, "activeDeadlineSeconds": spec.active_deadline}
    for name, limit in limits.items():
        if limit is not None and 0 < limit <= wait:
            raise reader.error("waitForReplicasSeconds", f"({wait}) must be less than spec.{name} ({limit})")


def _nproc(spec: Reader) -> str:
    value = spec.data.get("nprocPerNode", 1)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return str(value)
    if isinstance(value, str) and value in NPROC_WORDS:
        return value
    raise spec.error("nprocPerNode", f"must be a positive number, auto, gpu or cpu, not {value!r}")


def _rendezvous(reader: Reader) -> RendezvousSpec:
    return RendezvousSpec(
        backend=reader.choice("backend", "kubernetes", BACKENDS),
        join_timeout=reader.integer("joinTimeoutSeconds", 600, least=1),
        last_call_timeout=reader.integer("lastCallTimeoutSeconds", 30),
        close_timeout=reader.integer("closeTimeoutSeconds", 30),
        heartbeat_timeout=reader.integer("heartbeatTimeoutSeconds", 5, least=1),
        keep_alive_interval=reader.integer("keepAliveIntervalSeconds", 5, least=1),
        keep_alive_max_attempts=reader.integer("keepAliveMaxAttempts", 3, least=1),
        conf={str(key): str(value) for key, value in reader.mapping("conf").items()},
    )


def _worker_container(spec: Reader) -> str:
    """The container named by the user, else the one called `worker`, else the first."""
    pod = spec.within("template").within("spec")
    names = [item.get("name", "") for item in pod.items("containers") if isinstance(item, Mapping)]
    if not names:
        raise pod.error("containers", "must name at least one container")
    wanted = spec.text("workerContainer")
    if wanted and wanted not in names:
        raise spec.error("workerContainer", f"is {wanted!r}; spec.template has the containers {', '.join(names)}")
    if wanted:
        return wanted
    return constants.WORKER_CONTAINER if constants.WORKER_CONTAINER in names else str(names[0])
