"""64 agents join one rendezvous at the same instant through one ConfigMap on a real API server.

What counts is how often an agent must try to write, and that no healthy agent is ever given up. The numbers do not
depend on how fast the machine is, as those of a race without jitter would: there they grow without bound.
"""

import statistics
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.backends import kubernetes
from elasticjob.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.store import InMemoryStore
from tests.cluster import cluster

AGENTS = 64
CLUSTER = "bench"


class CountingBackend(RendezvousBackend):
    """Counts the writes that are tried through another backend."""

    def __init__(self, backend: RendezvousBackend) -> None:
        self._backend = backend
        self.tries = 0

    @property
    def name(self) -> str:
        return self._backend.name

    def get_state(self) -> tuple[bytes, Token] | None:
        return self._backend.get_state()

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        self.tries += 1
        return self._backend.set_state(state, token)


def measure() -> dict[str, float]:
    started = cluster.up(name=CLUSTER, level="control-plane", owned=True)
    try:
        return _join(started.kubeconfig)
    finally:
        cluster.down(CLUSTER)


def _join(kubeconfig: Path) -> dict[str, float]:
    run_id, store, barrier = uuid.uuid4().hex, InMemoryStore(), Barrier(AGENTS)

    def join(number: int) -> tuple[CountingBackend, DynamicRendezvousHandler, int]:
        backend = CountingBackend(_backend(kubeconfig, run_id))
        handler = DynamicRendezvousHandler.from_backend(
            run_id, store, backend, AGENTS, AGENTS, local_addr=f"10.0.0.{number}"
        )
        barrier.wait(timeout=60)
        return backend, handler, handler.next_rendezvous().world_size

    with ThreadPoolExecutor(AGENTS) as pool:
        joined = list(pool.map(join, range(AGENTS)))
        expired = sum(handler.num_nodes_waiting() > 0 for _, handler, _ in joined)
        list(pool.map(lambda agent: agent[1].shutdown(), joined))
    sizes = {size for _, _, size in joined}
    if sizes != {AGENTS}:
        raise RuntimeError(f"the agents disagree about the size of the round: {sizes}")
    return {
        "peer.join.n64.tries_median": statistics.median(backend.tries for backend, _, _ in joined),
        "peer.join.n64.expired": expired,
    }


def _backend(kubeconfig: Path, run_id: str) -> RendezvousBackend:
    config = {"kubeconfig": str(kubeconfig), "namespace": "default"}
    backend, _ = kubernetes.create_backend(RendezvousParameters("kubernetes", "", run_id, AGENTS, AGENTS, **config))
    return backend
