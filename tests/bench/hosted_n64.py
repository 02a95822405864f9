"""64 nodes join: the hosted rendezvous against torch's c10d of the newest release, in the same harness.

All nodes but one have joined and wait; the time runs from the call of the last one until all are released. Each side is
measured three times, and the medians are compared.

torch's agents walk their stacks for each event they record. That is left out here: in one process it takes minutes, on
64 machines nobody would notice.

Both sides have their 64 nodes in threads of one process. torch has its store in that process and no encryption, as it
always is; ours is another process, with TLS and tokens, and the time contains the last node's handshake and the write.
"""

import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.cluster.torch_packages import torch_site_packages

from .hosted_server import Server, start

NODES = 64
TIMES = 3
SETTLE_SECONDS = 4.0
"""Time for the first nodes to have joined and to wait."""

TORCH = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

# Each step of an agent names its caller by walking the stack. Agents that share a processor would do little else.
dynamic_rendezvous.get_method_name = lambda depth=2: "method"

nodes, times, settle = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def handlers(run_id):
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    for number in range(nodes):
        store = TCPStore("127.0.0.1", server.port, wait_for_workers=False, timeout=timedelta(seconds=60))
        params = RendezvousParameters("c10d", "", run_id, nodes, nodes, local_addr=f"127.0.0.{number + 1}")
        yield create_handler(store, C10dRendezvousBackend(store, run_id), params)
    yield server

def measure(run_id):
    *all_handlers, server = handlers(run_id)
    def join(handler):
        size = handler.next_rendezvous().world_size
        return size, time.monotonic()
    with ThreadPoolExecutor(nodes) as pool:
        first = [pool.submit(join, handler) for handler in all_handlers[1:]]
        time.sleep(settle)
        started = time.monotonic()
        joined = [join(all_handlers[0]), *(each.result() for each in first)]
        assert {size for size, _ in joined} == {nodes}, joined
        list(pool.map(lambda handler: handler.shutdown(), all_handlers))
    return max(moment for _, moment in joined) - started

print(json.dumps([measure(f"run-{number}") for number in range(times)]))
"""


def measure() -> dict[str, float]:
    theirs = _torch()
    ours, writes = [], 0
    with start() as server:
        for number in range(TIMES):
            seconds, written = _hosted(server, f"run-{number}")
            ours.append(seconds)
            writes = max(writes, written)
    print("    torch: " + _listed(theirs) + "; ours: " + _listed(ours))
    return {
        "hosted.join.n64.speedup_vs_torch": statistics.median(theirs) / statistics.median(ours),
        "hosted.join.n64.durable_writes": writes,
    }


def _listed(times: list[float]) -> str:
    return ", ".join(f"{seconds:.3f} s" for seconds in times)


def _torch() -> list[float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TORCH, str(NODES), str(TIMES), str(SETTLE_SECONDS)],
        env={"PYTHONPATH": str(torch_site_packages()), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the rendezvous of torch failed:\n{done.stderr[-2000:]}")
    return [float(seconds) for seconds in json.loads(done.stdout.splitlines()[-1])]


def _hosted(server: Server, run_id: str) -> tuple[float, int]:
    server.order(run_id, list(range(NODES)), wait=True)
    clients = [_client(server, run_id, index) for index in range(NODES)]
    written = server.writes()
    with ThreadPoolExecutor(NODES) as pool:
        last, *others = clients
        first = [pool.submit(_join, client) for client in others]
        time.sleep(SETTLE_SECONDS)
        started = time.monotonic()
        joined = [_join(last), *(each.result() for each in first)]
        written = server.writes() - written
        list(pool.map(_leave, clients))
    if {size for size, _ in joined} != {NODES}:
        raise RuntimeError("the nodes disagree about the size of the round")
    return max(moment for _, moment in joined) - started, written


def _client(server: Server, run_id: str, index: int) -> HostedRendezvousClient:
    token = server.directory / f"token-{run_id}-{index}"
    token.write_text(server.token(run_id, index))
    return HostedRendezvousClient(
        endpoint=ServerEndpoint(host="127.0.0.1", port=server.port, tls=True),
        run_id=run_id,
        address=f"{run_id}-{index}.{run_id}.train.svc",
        token_file=token,
        ca_file=server.ca_file,
    )


def _join(client: HostedRendezvousClient) -> tuple[int, float]:
    return client.join().world_size, time.monotonic()


def _leave(client: HostedRendezvousClient) -> bool:
    return client.leave(LeaveOutcome.SUCCEEDED)
