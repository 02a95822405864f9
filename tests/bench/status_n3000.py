"""How large the object of a job of 3,000 nodes gets at its worst. The limit of the API server is 1.5 MiB.

All nodes have failed, each with a long trace, over and over. The status is the planner's; the object is what a
real API server keeps and returns, with all that it adds.
"""

import json
from typing import Any

from tests.bench.operator_site import site
from tests.unit.operator.world import World

NODES = 3_000
FAILURES = 3
TRACE = "\x1b[31m<module>\x1b[0m 😀" * 4_096
"""Of characters that take much room in JSON."""
JOB = "digits"


def measure() -> dict[str, float]:
    status = _worst()
    with site() as where, where.cluster.namespace() as namespace:
        body = {
            "apiVersion": "elasticjob.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": JOB, "namespace": namespace},
            "spec": {"replicas": NODES, "template": {"spec": {"containers": [{"name": "worker", "image": "train:1"}]}}},
        }
        kubectl = where.cluster.kubectl
        kubectl("create", "-f", "-", input=json.dumps(body))
        kubectl("replace", "--subresource=status", "-f", "-", input=json.dumps({**body, "status": status}))
        stored = kubectl("get", "--raw", f"/apis/elasticjob.dev/v1alpha1/namespaces/{namespace}/elasticjobs/{JOB}")
    kept = json.loads(stored)["status"]["nodes"]
    if kept != status["nodes"]:
        raise RuntimeError("the API server does not keep the nodes as they were written")
    return {"status.n3000.bytes": len(stored.encode())}


def _worst() -> dict[str, Any]:
    world = World(replicas=NODES, minReplicas=1, restartPolicy={"maxRestarts": 1000})
    world.step()
    for _ in range(FAILURES):
        world.run(*range(NODES))
        world.form(*range(NODES))
        world.settle()
        for index in range(NODES):
            world.exit(index, 1, message=TRACE)
        world.step()
        world.later(3600)
        worst = world.status
        world.settle()
    return max(worst, world.status, key=lambda status: len(json.dumps(status)))
