"""The operator's rendezvous server on a loopback address, ordered about by a test in place of the operator.

Real host, real HTTP server, state in memory that outlives a restart. The token of a pod is its UID, and the UID of the
pod with index n is `uid-n`, or `uid-n-m` for its m-th replacement.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

import uvloop

from elasticjob.operator.hosting.host import Host
from elasticjob.operator.server.auth import Caller
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.rendezvous.backends.memory import MemoryRendezvousBackend, MemorySpace
from elasticjob.rendezvous.orders import CloseReason, NodeFacts, NodePhase, RunOrders, RunView

RUN = "8f14e45f-0000-4000-8000-00000000000c"
ADDRESS = "127.0.0.1"


class HostedOperator(AbstractContextManager["HostedOperator"]):
    """Runs the server in a thread of its own, on the same port after each restart."""

    def __init__(self, *, max_nodes: int = 4, max_worker_failures: int | None = None) -> None:
        self._space = MemorySpace(RUN)
        self._epoch = 0
        self._stop: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._host: Host | None = None
        self.port = 0
        self.orders = RunOrders(
            run_id=RUN,
            namespace="train",
            job="digits",
            min_nodes=1,
            max_nodes=max_nodes,
            expected=frozenset(),
            nodes={},
            max_worker_failures=max_worker_failures,
            keep_alive_interval=1.0,
            last_call_timeout=60.0,
        )

    def __enter__(self) -> "HostedOperator":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def authority(self) -> str:
        """`host:port` of the server."""
        return f"{ADDRESS}:{self.port}"

    def start(self) -> None:
        """Begin to lead, with the state that the last leader left."""
        self._epoch += 1
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(10), "the server did not start"

    def stop(self) -> None:
        """End like a process that dies: its connections are cut."""
        if self._stop is not None and self._thread is not None:
            self._stop()
            self._thread.join(10)
        self._stop = self._thread = None

    def expect(self, *indexes: int) -> None:
        """Want these nodes, whose pods run."""
        nodes = {uid: node for uid, node in self.orders.nodes.items() if node.index in indexes}
        for index in indexes:
            if not any(node.index == index for node in nodes.values()):
                nodes[f"uid-{index}"] = _node(index, f"uid-{index}")
        self._order(replace(self.orders, nodes=nodes, expected=frozenset(indexes)))

    def replace_pod(self, index: int, attempt: int) -> str:
        """The pod of a node is gone and has been replaced. Returns the UID of the new one."""
        uid = f"uid-{index}-{attempt}"
        nodes = {old: node for old, node in self.orders.nodes.items() if node.index != index}
        self._order(replace(self.orders, nodes={**nodes, uid: _node(index, uid)}))
        return uid

    def close(self, reason: CloseReason, message: str) -> None:
        """End the run."""
        self._order(replace(self.orders, close=reason, close_message=message))

    def wait_for(self, is_so: Callable[[RunView], object], timeout: float = 60.0) -> RunView:
        """Wait until the run looks as told."""
        deadline = time.monotonic() + timeout
        while True:
            view = None if self._host is None else self._host.view(RUN)
            if view is not None and is_so(view):
                return view
            assert time.monotonic() < deadline, f"the run looks like this: {view}"
            time.sleep(0.02)

    def _order(self, orders: RunOrders) -> None:
        self.orders = orders
        if self._host is not None:
            self._host.apply(orders)

    async def _serve(self, started: threading.Event) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(ended.set)

        self._stop = stop
        host = Host(
            epoch=self._epoch,
            backend_factory=lambda _: MemoryRendezvousBackend(self._space),
            on_change=lambda namespace, job: None,
            on_lost=lambda message: None,
        )
        host.apply(self.orders)
        server = RendezvousHttpServer(host, _TokensAreUids(), port=self.port, address=ADDRESS)
        await host.start()
        await server.start()
        self.port, self._host = server.port, host
        started.set()
        await ended.wait()
        self._host = None
        await server.stop(grace=0.1)
        await host.stop()


class _TokensAreUids:
    def recognize(self, token: str) -> Caller:
        return Caller(namespace="train", pod=f"pod-{token}", pod_uid=token)

    async def identify(self, token: str) -> Caller:
        return self.recognize(token)


def _node(index: int, uid: str) -> NodeFacts:
    return NodeFacts(pod_uid=uid, pod=f"digits-{index}-0", index=index, phase=NodePhase.ALIVE)
