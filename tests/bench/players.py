"""Plays what is not there: the nodes that run pods, and the agents in them.

The player watches the pods of one namespace and writes into the status of each what a kubelet would once its worker
runs. It is the same for all operators. Agents make the calls of the client library with tokens that are bound to their
pods, over TLS, as many as there are pods in one event loop.
"""

import asyncio
import contextlib
import itertools
import json
import resource
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.constants import LABEL_JOB_UID, LABEL_NODE_INDEX, TOKEN_AUDIENCE

from .hosted_clients import Connection, Node

CONNECTIONS = 16
"""Calls to the API server at a time."""
RETRY_SECONDS = 1.0
PORTION = 100
_CONNECTING_AT_ONCE = 16
_LONGEST_LINE = 2**22


@dataclass(kw_only=True)
class Player:
    """Plays the nodes of one namespace."""

    session: aiohttp.ClientSession
    namespace: str
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    task: "asyncio.Task[None] | None" = None
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))

    def path(self, rest: str) -> str:
        """A path in the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/{rest}"

    async def call(self, method: str, path: str, body: object, media: str = "application/json") -> dict[str, Any]:
        """Make one call."""
        async with (
            self._gate,
            self.session.request(method, path, data=json.dumps(body), headers={"Content-Type": media}) as answer,
        ):
            content: dict[str, Any] = await answer.json()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {content.get('message')}")
            return content

    async def get(self, path: str) -> dict[str, Any]:
        """Read one object."""
        async with self.session.get(path) as answer:
            content: dict[str, Any] = await answer.json()
            return content

    async def until_running(self, count: int, *, seconds: float) -> None:
        """Wait until so many pods have been marked Running. Raises what ended the play."""
        async with asyncio.timeout(seconds):
            while len(self.running) < count:
                if self.task is not None and self.task.done():
                    self.task.result()
                await asyncio.sleep(0.1)

    async def play(self) -> None:
        """Mark each pod that appears as Running, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                # The server ends the watch of a client that is too slow. A new one begins with all that is there.
                async for pod in self._appearing():
                    if pod["metadata"]["name"] not in self.pods:
                        self.pods[pod["metadata"]["name"]] = pod
                        group.create_task(self._run(pod))

    async def _appearing(self) -> AsyncIterator[dict[str, Any]]:
        query = {"watch": "true", "timeoutSeconds": "3600", "fieldSelector": "status.phase=Pending"}
        async with self.session.get(self.path("pods"), params=query, read_bufsize=_LONGEST_LINE) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ADDED":
                    yield event["object"]

    async def _run(self, pod: Mapping[str, Any]) -> None:
        name = pod["metadata"]["name"]
        patch = {"status": running_status(pod)}
        await self.call("PATCH", self.path(f"pods/{name}/status"), patch, "application/merge-patch+json")
        self.running.add(name)

    async def token(self, pod: str) -> str:
        """A token of a pod, as the kubelet gets it."""
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": self.pods[pod]["metadata"]["uid"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [TOKEN_AUDIENCE], "boundObjectRef": bound},
        }
        answer = await self.call("POST", self.path("serviceaccounts/default/token"), body)
        return str(answer["status"]["token"])


def running_status(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a pod whose containers run."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    true = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
    return {"phase": "Running", "startTime": now, "conditions": true, "containerStatuses": containers}


@contextlib.asynccontextmanager
async def playing(kubeconfig: Path, namespace: str) -> AsyncIterator[Player]:
    """Play the nodes of a namespace for the time of the block."""
    configuration = Configuration()
    await config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(kubeconfig), client_configuration=configuration
    )
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    assert configuration.cert_file is not None
    context.load_cert_chain(configuration.cert_file, configuration.key_file)
    connector = aiohttp.TCPConnector(ssl=context, limit=2 * CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with aiohttp.ClientSession(configuration.host, connector=connector, timeout=timeout) as session:
        player = Player(session=session, namespace=namespace)
        task = player.task = asyncio.create_task(player.play())
        try:
            yield player
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Dialer:
    """Opens TLS connections to the rendezvous server, some at a time. The server is taken at its word."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def connect(self, connection: Connection) -> None:
        """Open one connection."""
        async with self._gate:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, "127.0.0.1", self._port, ssl=self._context)


@contextlib.asynccontextmanager
async def taking_part(player: Player, port: int) -> AsyncIterator[list[Node]]:
    """One agent for each pod, in a round and sending heartbeats for the time of the block.

    Raises:
        RuntimeError: An agent was told something after its round had formed.
    """
    pods = list(player.pods.values())
    tokens = await asyncio.gather(*(player.token(pod["metadata"]["name"]) for pod in pods))
    agents = [_agent(pod["metadata"]["labels"], token) for pod, token in zip(pods, tokens, strict=True)]
    dialer = Dialer(port)
    tasks: list[asyncio.Task[None]] = []
    try:
        for some in _portions(agents):
            tasks += [asyncio.create_task(_live(agent, dialer)) for agent in some]
            while not all(agent.released_at for agent in some):
                _check(tasks)
                await asyncio.sleep(0.05)
        yield agents
        _check(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent in agents:
            agent.joining.close()
            agent.beating.close()


def _portions(agents: Sequence[Node]) -> Iterator[list[Node]]:
    """The agents of whole runs, a hundred or more at a time: who is in a round must soon send heartbeats."""
    portion: list[Node] = []
    for _, run in itertools.groupby(sorted(agents, key=lambda agent: agent.run_id), key=lambda agent: agent.run_id):
        portion += run
        if len(portion) >= PORTION:
            yield portion
            portion = []
    yield portion


def _agent(labels: Mapping[str, str], token: str) -> Node:
    return Node(run_id=labels[LABEL_JOB_UID], index=int(labels[LABEL_NODE_INDEX]), token=token)


async def _live(agent: Node, dialer: Dialer) -> None:
    """What an agent does: join, then send heartbeats over another connection until it is told something."""
    await dialer.connect(agent.joining)
    await _join(agent)
    agent.joining.close()
    await dialer.connect(agent.beating)
    await agent.beat()
    raise RuntimeError(f"node {agent.index} of {agent.run_id} was told something although nothing happened")


async def _join(agent: Node) -> None:
    """Join, and call again as the client library does while the operator has not seen the pod yet."""
    while True:
        try:
            await agent.join()
        except RuntimeError as refused:
            if "unknown-" not in str(refused):
                raise
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


def _check(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        if task.done():
            task.result()
