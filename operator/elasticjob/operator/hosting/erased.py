"""Runs that are over since their job is gone: what is left of them is told so for good, and does not ask for ever."""

from elasticjob.rendezvous.orders import CloseReason, RunOrders
from elasticjob.rendezvous.protocol import Closed, ErrorCode, ProtocolError

MAX_RUNS = 4096
MAX_PODS = 16_384
"""How many are remembered; the oldest are forgotten first."""


class Erased:
    """The runs, and the pods that they had last."""

    def __init__(self) -> None:
        self._runs: dict[str, None] = {}
        self._run_of_pod: dict[str, str] = {}

    def add(self, orders: RunOrders) -> None:
        """The job of a run is gone."""
        self._runs[orders.run_id] = None
        self._run_of_pod.update(dict.fromkeys(orders.nodes, orders.run_id))
        while len(self._runs) > MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        while len(self._run_of_pod) > MAX_PODS:
            del self._run_of_pod[next(iter(self._run_of_pod))]

    def run_of(self, pod_uid: str) -> str | None:
        """The run that a pod was in."""
        return self._run_of_pod.get(pod_uid)

    def refusal(self, run_id: str) -> ProtocolError:
        """What callers are told of a run that is not there."""
        if run_id not in self._runs:
            return ProtocolError(ErrorCode.UNKNOWN_RUN, f"run {run_id} is not known here (yet)")
        closed = Closed(reason=CloseReason.DELETED.value, message="the job is gone")
        return ProtocolError(ErrorCode.CLOSED, f"the run is closed: {closed.reason}", closed=closed)
