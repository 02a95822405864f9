"""The server that one would write first, to compare with: aiohttp with asyncio's TLS, without tokens, states or bounds.

It takes the calls of the same simulated workers, and is told what to do in the same way as `hosted_server`. It knows
one round: all who join are released when the last one has. Heartbeats are answered at once.
"""

import asyncio
import json
import ssl
import sys
from pathlib import Path

from aiohttp import web

from tests.bench.hosted_server import make_certificate, say


class Round:
    """One round, formed when as many have joined as were ordered."""

    def __init__(self) -> None:
        self.size = 0
        self.ranks: dict[str, int] = {}
        self.held = 0
        self.formed = asyncio.Event()
        self.members = b""

    async def join(self, request: web.Request) -> web.Response:
        address = str((await request.json())["address"])
        rank = self.ranks.setdefault(address, len(self.ranks))
        if len(self.ranks) == self.size:
            # Encoded once for all, which is kind to it.
            members = [{"rank": rank, "index": rank, "address": address} for address, rank in self.ranks.items()]
            self.members = json.dumps({"members": members}, separators=(",", ":")).encode()[:-1]
            self.formed.set()
        self.held += 1
        await self.formed.wait()
        self.held -= 1
        own = f',"state":"formed","round":1,"rank":{rank},"worldSize":{self.size}}}'
        return web.Response(body=self.members + own.encode(), content_type="application/json")

    async def heartbeat(self, request: web.Request) -> web.Response:
        await request.json()
        return web.json_response({"round": 1, "waiting": 0, "closed": None, "evicted": False, "intervalSeconds": 5})


async def _serve(directory: Path) -> None:
    context: ssl.SSLContext = await make_certificate(directory)
    a_round, app = Round(), web.Application()
    app.add_routes(
        [web.post("/v1/runs/{run}/join", a_round.join), web.post("/v1/runs/{run}/heartbeat", a_round.heartbeat)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context, backlog=4096)
    await site.start()
    say({"port": runner.addresses[0][1]})
    await asyncio.to_thread(_obey, a_round)
    await runner.cleanup()


def _obey(a_round: Round) -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if "run" in told:
            a_round.size = len(told["pods"])
            say({"applied": 0.0})
        else:
            say({"writes": 0, "refusals": {}, "held": a_round.held})


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
