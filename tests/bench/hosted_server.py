"""The server process of the hosted benchmarks: the real host, authentication, TLS and HTTP server of the operator.

Only the cluster is missing: the keys that sign the tokens come from a file, and states are kept in memory, where each
write takes as long as one to an API server. `start` makes such a process; it is told what to do in lines of JSON on its
standard input, and answers each with one line.
"""

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from joserfc import jwt
from joserfc.jwk import RSAKey

from elasticjob.operator.clock import SystemClock
from elasticjob.operator.constants import TOKEN_AUDIENCE
from elasticjob.operator.errors import NotFound
from elasticjob.operator.hosting.compose import relax_collector
from elasticjob.operator.hosting.host import Host
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Body
from elasticjob.operator.server.auth import DISCOVERY_PATH, Authenticator
from elasticjob.operator.server.certificates import TlsKeeper
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.rendezvous.backend import RendezvousBackend, Token
from elasticjob.rendezvous.orders import NodeFacts, NodePhase, RunOrders
from tests.bench import process_cost

WRITE_SECONDS = 0.02
"""What one write takes."""
PATIENCE = 24
"""Heartbeats that a node may miss: on a busy machine the many clients may not find the time for theirs."""
ISSUER = "https://kubernetes.default.svc"


class CountingBackend(RendezvousBackend):
    """One state in memory. `writes` counts those of all runs."""

    writes = 0

    def __init__(self) -> None:
        self._value: tuple[bytes, Token] | None = None

    @property
    def name(self) -> str:
        return "memory"

    def get_state(self) -> tuple[bytes, Token] | None:
        return self._value

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        time.sleep(WRITE_SECONDS)
        CountingBackend.writes += 1
        self._value = (state, CountingBackend.writes)
        return (*self._value, True)


class Published:
    """The part of a cluster that publishes the keys of tokens and keeps one Secret."""

    def __init__(self, keys: Body) -> None:
        self.keys = keys
        self._secret: dict[str, Any] | None = None

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        return {"issuer": ISSUER} if path == DISCOVERY_PATH else self.keys

    async def get(self, resource: object, name: str, **where: object) -> Body:
        if self._secret is None:
            raise NotFound(f"secret {name}")
        return self._secret

    async def create(self, resource: object, body: Any, **where: object) -> Body:
        self._secret = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        return self._secret


async def make_certificate(directory: Path) -> ssl.SSLContext:
    """Make a certificate, and write its authority for the clients."""
    published: Any = Published({})
    tls = TlsKeeper(published, namespace="bench", name="tls", names=("127.0.0.1",), wall=SystemClock().wall)
    await tls.ensure()
    (directory / "ca.crt").write_text(tls.bundle)
    return tls.context


async def _serve(directory: Path) -> None:
    published: Any = Published(json.loads((directory / "keys.json").read_text()))
    context = await make_certificate(directory)
    metrics = Metrics()
    host = Host(
        epoch=1,
        backend_factory=lambda _: CountingBackend(),
        on_change=lambda namespace, job: None,
        on_lost=lambda message: None,
        metrics=metrics,
    )
    server = RendezvousHttpServer(host, Authenticator(published), port=0, address="127.0.0.1", ssl_context=context)
    relax_collector()
    await host.start()
    await server.start()
    say({"port": server.port})
    await asyncio.to_thread(_obey, host, metrics)
    await server.stop(grace=0.0)
    await host.stop()


def _obey(host: Host, metrics: Metrics) -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if "run" in told:
            orders = _orders(told["run"], told["pods"])
            moment = time.monotonic()
            host.apply(orders)
            while "wait" in told and host.view(told["run"]) is None:
                time.sleep(0.002)
            say({"applied": moment})
        else:
            (held,) = next(iter(metrics.connected_nodes.collect())).samples
            say({"writes": CountingBackend.writes, "refusals": dict(host.refusals), "held": held.value})


def _orders(run_id: str, pods: list[int]) -> RunOrders:
    return RunOrders(
        run_id=run_id,
        namespace="train",
        job=run_id,
        min_nodes=len(pods),
        max_nodes=max(pods) + 1,
        expected=frozenset(pods),
        keep_alive_max_attempt=PATIENCE,
        nodes={
            pod_uid(run_id, index): NodeFacts(
                pod_uid=pod_uid(run_id, index), pod=f"{run_id}-{index}-0", index=index, phase=NodePhase.ALIVE
            )
            for index in pods
        },
    )


def pod_uid(run_id: str, index: int) -> str:
    return f"{run_id}-uid-{index}"


def say(value: object) -> None:
    """Tell the end that started this process."""
    print(json.dumps(value), flush=True)


# -- the end that starts it


@dataclass(kw_only=True)
class Server:
    """A running server process."""

    process: "subprocess.Popen[str]"
    directory: Path
    key: RSAKey
    port: int = 0

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    def order(self, run_id: str, pods: list[int], *, wait: bool = False) -> float:
        """Order the pods of a run. Returns the moment (monotonic seconds) at which the host was told."""
        said = self._ask({"run": run_id, "pods": pods, **({"wait": True} if wait else {})})
        return float(said["applied"])

    def writes(self) -> int:
        """Durable writes so far."""
        return int(self._ask({})["writes"])

    def held(self) -> int:
        """Calls that are held open now."""
        return int(self._ask({})["held"])

    def refusals(self) -> Mapping[str, int]:
        """Refused calls so far."""
        return dict(self._ask({})["refusals"])

    def cpu_seconds(self) -> float:
        """CPU time of the process with all its threads so far."""
        return process_cost.cpu_seconds(self.process.pid)

    def mib(self) -> float:
        """Resident memory."""
        return process_cost.mib(self.process.pid)

    def token(self, run_id: str, index: int) -> str:
        """The token of a pod, as the cluster makes it."""
        claims = {
            "iss": ISSUER,
            "aud": [TOKEN_AUDIENCE],
            "exp": int(time.time()) + 3600,
            "iat": int(time.time()),
            "sub": "system:serviceaccount:train:default",
            "kubernetes.io": {
                "namespace": "train",
                "pod": {"name": f"{run_id}-{index}-0", "uid": pod_uid(run_id, index)},
                "serviceaccount": {"name": "default", "uid": "41e0b1b2-0000-4000-8000-000000000001"},
            },
        }
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server process ended")
        said: dict[str, Any] = json.loads(line)
        return said

    def _ask(self, told: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return self.read()


@contextlib.contextmanager
def start(module: str = __name__) -> Iterator[Server]:
    """A server process for the time of the block.

    Args:
        module: What is run: this one, or one that is told what to do in the same way.
    """
    with tempfile.TemporaryDirectory(prefix="elasticjob-bench-") as scratch:
        directory = Path(scratch)
        command = [sys.executable, "-m", module, scratch]
        pipe = subprocess.PIPE
        key = RSAKey.generate_key(2048)
        keys = {"keys": [key.as_dict(kid="one", use="sig", alg="RS256")]}
        (directory / "keys.json").write_text(json.dumps(keys))
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                server = Server(process=process, directory=directory, key=key)
                server.port = int(server.read()["port"])
                yield server
            finally:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(10)
                finally:
                    process.kill()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
