"""The operator of one namespace, as a process that can be killed and started anew on the same port."""

from tests.cluster.cluster import Cluster
from tests.integration.operator.operators import OperatorProcess, start_process


class Operators:
    """The operator process of a namespace, which can be killed and started anew."""

    def __init__(self, cluster: Cluster, namespace: str, port: int) -> None:
        self._cluster, self._namespace, self._port = cluster, namespace, port
        self._process: OperatorProcess | None = None
        self._started = 0

    def start(self) -> None:
        """Start another process."""
        self._started += 1
        variables = {
            "rendezvous_port": str(self._port),
            "rendezvous_endpoint": f"127.0.0.1:{self._port}",
            "rendezvous_tls": "false",
        }
        name = f"operator-{self._started}"
        self._process = start_process(self._cluster.kubeconfig, self._namespace, name, variables)

    def kill(self) -> None:
        """End it without notice."""
        if self._process is not None:
            self._process.kill()
