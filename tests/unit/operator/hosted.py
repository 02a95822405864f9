"""A host with its HTTP server on a loopback address, over state in memory; the token of a pod is its UID."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from elasticjob.operator.hosting.calls import HangUp
from elasticjob.operator.hosting.host import Host, HostLimits
from elasticjob.operator.hosting.state import Answered
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.server.auth import Caller
from elasticjob.operator.server.connections import ServerLimits
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.coordinator import WaitResult
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.orders import NodeFacts, NodePhase, RunOrders, RunView
from elasticjob.rendezvous.protocol import (
    ErrorCode,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinFormed,
    JoinRequest,
    JoinWaiting,
    ProtocolError,
)

RUN = "8f14e45f-0000-4000-8000-000000000001"


class Cell(RendezvousBackend):
    """State in memory that can be made to fail or to hang."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.version = 0
        self.writes = 0
        self.trouble: Exception | None = None

    @property
    def name(self) -> str:
        return "memory"

    def get_state(self) -> tuple[bytes, Token] | None:
        if self.trouble is not None:
            raise self.trouble
        return None if self.value is None else (self.value, self.version)

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        current = self.get_state()
        if token != (None if current is None else current[1]):
            return None if current is None else (*current, False)
        self.value, self.version, self.writes = state, self.version + 1, self.writes + 1
        return state, self.version, True

    def overwrite(self, value: bytes) -> None:
        """Somebody else writes."""
        self.value, self.version = value, self.version + 1


class TokensAreUids:
    """Takes every token that starts with `uid` for the UID of a pod in the namespace `train`.

    For those that end with `?` somebody else would have to be asked first.
    """

    def recognize(self, token: str) -> Caller | None:
        if not token.startswith("uid"):
            raise ProtocolError(ErrorCode.UNAUTHENTICATED, "not a token")
        return None if token.endswith("?") else Caller(namespace="train", pod=f"pod-{token}", pod_uid=token)

    async def identify(self, token: str) -> Caller:
        await asyncio.sleep(0)
        caller = self.recognize(token.rstrip("?"))
        assert caller is not None
        return caller


def node(index: int, *, uid: str = "", phase: NodePhase = NodePhase.ALIVE) -> NodeFacts:
    name = uid or f"uid-{index}"
    return NodeFacts(pod_uid=name, pod=f"digits-{index}-0", index=index, phase=phase)


def orders(nodes: int, **changes: Any) -> RunOrders:
    made = RunOrders(
        run_id=RUN,
        namespace="train",
        job="digits",
        min_nodes=1,
        max_nodes=max(nodes, 1),
        expected=frozenset(range(nodes)),
        nodes={f"uid-{index}": node(index) for index in range(nodes)},
    )
    return replace(made, **changes)


def join_body(**changes: Any) -> dict[str, Any]:
    return {"incarnation": "a", "address": "10.0.0.1", "pid": 1, "round": 0, "failure": None, "wait": 10, **changes}


async def _answer_of(call: Callable[[Answered], HangUp | HeartbeatAnswer]) -> WaitResult:
    """The answer to a call, at once or later; a caller that is cancelled hangs up."""
    future: asyncio.Future[WaitResult] = asyncio.get_running_loop().create_future()
    held = call(lambda result: None if future.done() else future.set_result(result))
    if isinstance(held, HeartbeatAnswer):
        return held
    try:
        result = await future
    except asyncio.CancelledError:
        held()
        raise
    if isinstance(result, ProtocolError):
        raise result
    return result


@dataclass(kw_only=True)
class Hosted:
    """What a test sees of a running host."""

    host: Host
    server: RendezvousHttpServer
    session: aiohttp.ClientSession
    cells: dict[str, Cell]
    events: list[dict[str, Any]]
    changes: list[tuple[str, str]]
    lost: list[str]
    has_lost: asyncio.Event
    scheme: str = "http"

    async def call(
        self, method: str, path: str, body: object = None, *, uid: str = "uid-0", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Make one call of a worker; returns status and JSON."""
        sent = {"Authorization": f"Bearer {uid}", "Elasticjob-Protocol": "1", **(headers or {})}
        url = f"{self.scheme}://127.0.0.1:{self.server.port}{path}"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with self.session.request(method, url, data=data, headers=sent) as answer:
            self.last_headers = answer.headers
            return answer.status, json.loads(await answer.read())

    async def direct_join(self, run_id: str, uid: str, request: JoinRequest) -> JoinAnswer:
        """Call the host itself, without HTTP."""
        result = await _answer_of(lambda answered: self.host.join(run_id, uid, request, answered=answered))
        assert isinstance(result, JoinFormed | JoinWaiting)
        return result

    async def direct_heartbeat(self, run_id: str, uid: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Call the host itself, without HTTP."""
        result = await _answer_of(lambda answered: self.host.heartbeat(run_id, uid, request, answered=answered))
        assert isinstance(result, HeartbeatAnswer)
        return result

    async def join(self, uid: str = "uid-0", **changes: Any) -> tuple[int, dict[str, Any]]:
        return await self.call("POST", f"/v1/runs/{RUN}/join", join_body(**changes), uid=uid)

    async def beat(self, round: int, uid: str = "uid-0", **changes: Any) -> tuple[int, dict[str, Any]]:
        body = {"incarnation": "a", "round": round, "endpoint": None, **changes}
        return await self.call("POST", f"/v1/runs/{RUN}/heartbeat", body, uid=uid)

    async def viewed(self, is_so: Callable[[RunView], object]) -> RunView:
        """Wait until the view is as told."""
        async with asyncio.timeout(10):
            while True:
                view = self.host.view(RUN)
                if view is not None and is_so(view):
                    return view
                await asyncio.sleep(0.005)


@dataclass(kw_only=True)
class Setting:
    """What a hosted server is made of."""

    cells: dict[str, Cell] = field(default_factory=dict)
    epoch: int = 3
    limits: HostLimits | None = None
    server_limits: ServerLimits | None = None
    metrics: Metrics = field(default_factory=Metrics)
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    holds_lease: bool | Exception = False
    """What the lease says when it is asked."""

    async def ask_lease(self) -> bool:
        if isinstance(self.holds_lease, Exception):
            raise self.holds_lease
        return self.holds_lease

    def backend(self, run: RunOrders) -> RendezvousBackend:
        return self.cells.setdefault(run.run_id, Cell())


@contextlib.asynccontextmanager
async def serving(setting: Setting | None = None, *first: RunOrders) -> AsyncIterator[Hosted]:
    """A running host and server."""
    made = setting or Setting()
    events: list[dict[str, Any]] = []
    changes: list[tuple[str, str]] = []
    lost: list[str] = []
    has_lost = asyncio.Event()

    def on_lost(message: str) -> None:
        lost.append(message)
        has_lost.set()

    host = Host(
        epoch=made.epoch,
        backend_factory=made.backend,
        on_change=lambda namespace, job: changes.append((namespace, job)),
        on_lost=on_lost,
        holds_lease=made.ask_lease,
        sink=lambda **event: events.append(event),
        limits=made.limits,
        metrics=made.metrics,
    )
    for run in first:
        host.apply(run)
    server = RendezvousHttpServer(
        host,
        TokensAreUids(),
        port=0,
        address="127.0.0.1",
        ssl_context=made.server_tls,
        limits=made.server_limits,
        metrics=made.metrics,
    )
    await host.start()
    await server.start()
    connector = aiohttp.TCPConnector(limit=0, ssl=made.client_tls or True, force_close=made.client_tls is not None)
    async with aiohttp.ClientSession(connector=connector) as session:
        hosted = Hosted(
            host=host,
            server=server,
            session=session,
            cells=made.cells,
            events=events,
            changes=changes,
            lost=lost,
            has_lost=has_lost,
            scheme="https" if made.server_tls else "http",
        )
        try:
            yield hosted
        finally:
            await server.stop(grace=0.1)
            await host.stop()


def unreachable() -> RendezvousConnectionError:
    return RendezvousConnectionError("etcd at 10.0.0.9:2379: connection refused")
