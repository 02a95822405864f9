"""What Kubernetes and Prometheus ask the operator: /healthz, /readyz and /metrics.

Live: every event loop of the process turns. Ready: the cache is complete and the watches are active; a standby is as
ready as the leader, since a rolling update waits for readiness before the old leader goes.
"""

import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from elasticjob.operator.metrics import Metrics

Check = Callable[[], list[str]]
"""Tells what is wrong; nothing if all is well."""


class HealthServer:
    """Serves the three paths. Belongs to the event loop on which it is started."""

    def __init__(self, *, port: int, live: Check, ready: Check, metrics: Metrics) -> None:
        self._port = port
        self._live = live
        self._ready = ready
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the chosen one if 0 was asked for."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen on all addresses."""
        app = web.Application()
        app.router.add_get("/healthz", _handler(self._live))
        app.router.add_get("/readyz", _handler(self._ready))
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, _listen(self._port)).start()

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


def _listen(port: int) -> socket.socket:
    """One socket for both families: with two, each would choose a free port of its own."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", port), backlog=128)


def _handler(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        troubles = check()
        return web.Response(text="\n".join(troubles or ["ok"]) + "\n", status=503 if troubles else 200)

    return answer
