"""The operator's metrics, in a registry of its own.

One object a process, given to the parts that count. Nothing is labelled by job or pod: the number of series does not
grow with the cluster. Series whose labels are known beforehand exist from the start with 0: Prometheus cannot see the
first increment of a series that appears with it, and what is counted here is rare.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import product

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from elasticjob.rendezvous.coordinator.incident import Opening
from elasticjob.rendezvous.coordinator.verdict import Detector
from elasticjob.rendezvous.protocol import ErrorCode

HALVES = ("controller", "watch", "rendezvous")
EVENT_TYPES = ("Normal", "Warning")
DROP_CAUSES = ("queue-full", "rate", "not-leader")
STALE_CALLS = ("heartbeat", "leave")
RESULTS = ("done", "failed", "error", "not-leader")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Cut(str, Enum):
    """Why a connection of the rendezvous server was cut."""

    TLS = "tls"
    """What arrived is no TLS, or the client gave up in the handshake: it does not accept our certificate."""
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    REQUEST_TIMEOUT = "request-timeout"
    ANSWER_TIMEOUT = "answer-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    FLOOD = "flood"
    """The client sends more while its call is being answered than one more call may have."""
    BROKEN = "broken"
    """By the client, in the middle of a request."""


@dataclass
class Outcome:
    """How a timed call ended: an HTTP status, or `none` if there was no answer."""

    code: str = "none"


class Metrics:
    """All counters, gauges and histograms. Thread-safe, as the library's are."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._api_calls = Counter(
            "elasticjob_api_calls",
            "Calls to the API server by verb, resource and HTTP status.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._api_seconds = Histogram(
            "elasticjob_api_call_seconds",
            "Duration of calls to the API server.",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "elasticjob_reconcile_seconds",
            "Duration of reconciles.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.reconciles = Counter("elasticjob_reconciles", "Reconciles by result.", ["result"], registry=self.registry)
        self.queue_depth = Gauge("elasticjob_queue_depth", "Jobs that wait for a worker.", registry=self.registry)
        self.queue_refused = Counter(
            "elasticjob_queue_refused", "Requests for work refused by a full queue.", registry=self.registry
        )
        self.jobs = Gauge("elasticjob_jobs", "ElasticJobs known.", registry=self.registry)
        self.pods = Gauge("elasticjob_pods", "Worker pods known.", registry=self.registry)
        self.watch_events = Counter(
            "elasticjob_watch_events", "Watch events by resource.", ["resource"], registry=self.registry
        )
        self.events_posted = Counter(
            "elasticjob_events_posted", "Kubernetes Events written.", ["type"], registry=self.registry
        )
        self.events_dropped = Counter(
            "elasticjob_events_dropped",
            "Kubernetes Events not written, by type and reason.",
            ["type", "cause"],
            registry=self.registry,
        )
        self.leader = Gauge("elasticjob_leader", "1 while this process leads.", registry=self.registry)
        self.epoch = Gauge("elasticjob_epoch", "The epoch in which this process leads or led.", registry=self.registry)
        self.half_restarts = Counter(
            "elasticjob_half_restarts", "Restarts of a half of the process.", ["half"], registry=self.registry
        )

        self._add_rendezvous()
        self._begin_series()

    def _add_rendezvous(self) -> None:
        self.calls_refused = Counter(
            "elasticjob_rendezvous_calls_refused",
            "Calls of worker pods refused, by code.",
            ["code"],
            registry=self.registry,
        )
        self.stale_calls = Counter(
            "elasticjob_rendezvous_stale_calls",
            "Calls of nodes that are not in the newest round: heartbeats answered so, and farewells ignored.",
            ["call"],
            registry=self.registry,
        )
        self.connections_refused = Counter(
            "elasticjob_rendezvous_connections_refused",
            "Connections closed for being too many.",
            registry=self.registry,
        )
        self.connections_cut = Counter(
            "elasticjob_rendezvous_connections_cut",
            "Connections that ended otherwise than by an answer, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.connections = Gauge(
            "elasticjob_rendezvous_connections", "Open connections of worker pods.", registry=self.registry
        )
        self.connected_nodes = Gauge(
            "elasticjob_rendezvous_connected_nodes",
            "Worker pods with a call that is held open.",
            registry=self.registry,
        )
        self.facts_dropped = Counter(
            "elasticjob_rendezvous_events_dropped",
            "RdzvEvents not recorded, since too many wait.",
            registry=self.registry,
        )
        self.state_writes = Counter(
            "elasticjob_rendezvous_state_writes", "States of runs written.", registry=self.registry
        )
        self.stale_writes_refused = Counter(
            "elasticjob_rendezvous_stale_writes_refused",
            "Writes of states refused since another operator leads.",
            registry=self.registry,
        )
        self.states_swept = Counter(
            "elasticjob_rendezvous_states_swept",
            "States in etcd erased that jobs deleted while no operator ran had left behind.",
            registry=self.registry,
        )
        self.rounds = Counter(
            "elasticjob_rendezvous_rounds", "Rounds formed, by cause.", ["cause"], registry=self.registry
        )
        self.participants = Gauge(
            "elasticjob_rendezvous_participants", "Members of all newest rounds.", registry=self.registry
        )
        self.loss_silence = Histogram(
            "elasticjob_rendezvous_loss_silence_seconds",
            "Time for which a node had not called when it was noticed that it left or was lost, by who noticed.",
            ["detector"],
            buckets=(*_BUCKETS, 15.0, 30.0, 60.0),
            registry=self.registry,
        )
        self.round_seconds = Histogram(
            "elasticjob_rendezvous_round_seconds",
            "Time from what made a round necessary until it was formed.",
            buckets=(*_BUCKETS, 30.0, 60.0, 300.0),
            registry=self.registry,
        )

    def _begin_series(self) -> None:
        _begin(self.reconciles, product(RESULTS))
        _begin(self.events_posted, product(EVENT_TYPES))
        _begin(self.events_dropped, product(EVENT_TYPES, DROP_CAUSES))
        _begin(self.half_restarts, product(HALVES))
        _begin(self.calls_refused, ((code.value,) for code in ErrorCode))
        _begin(self.stale_calls, product(STALE_CALLS))
        _begin(self.connections_cut, ((cut.value,) for cut in Cut))
        _begin(self.rounds, ((opening.value,) for opening in Opening))
        _begin(self.loss_silence, ((detector.value,) for detector in Detector))

    @contextmanager
    def api_call(self, verb: str, resource: str) -> Iterator[Outcome]:
        """Count and time one call; the body sets the outcome's code once there is an answer."""
        outcome = Outcome()
        started = time.perf_counter()
        try:
            yield outcome
        finally:
            self._api_calls.labels(verb, resource, outcome.code).inc()
            self._api_seconds.labels(verb).observe(time.perf_counter() - started)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)


def _begin(metric: Counter | Histogram, labels: Iterable[tuple[str, ...]]) -> None:
    for values in labels:
        metric.labels(*values)
