"""How large the stored state of 1,000 nodes is. The limit of a ConfigMap is 1 MiB."""

import uuid

from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.state import Node, State


def measure() -> dict[str, float]:
    nodes = [
        Node(
            key=str(uuid.UUID(int=index << 64)),
            address=f"a-long-job-name-{index}.a-long-job-name.a-long-namespace.svc",
            order=index,
            pid=4_000_000,
            name=f"a-long-job-name-{index}-0",
        )
        for index in range(1_000)
    ]
    state = State(round=1, complete=True, participants={node.key: node for node in nodes})
    return {"state.n1000.bytes": len(encode(state))}
