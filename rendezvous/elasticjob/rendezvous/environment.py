"""What the operator tells a worker pod through its environment, and the one place where it is read.

The names are the interface between operator and worker, whatever framework runs in the pod. `NodeEnvironment` is a
checked, immutable reading of them: a value that cannot work is refused at start with the name of its variable and the
value, and not later as an odd connection error.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticjob.rendezvous.endpoint import ServerEndpoint

ENDPOINT = "ELASTICJOB_ENDPOINT"
"""URL of the rendezvous server."""
RUN_ID = "ELASTICJOB_RUN_ID"
"""UID of the ElasticJob."""
NODE_INDEX = "ELASTICJOB_NODE_INDEX"
"""Stable index of the node; a replacement pod has the index of its predecessor."""
POD_NAME = "ELASTICJOB_POD_NAME"
POD_UID = "ELASTICJOB_POD_UID"
POD_IP = "ELASTICJOB_POD_IP"
TOKEN_FILE = "ELASTICJOB_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""Path of the projected ServiceAccount token. The kubelet replaces its content before it expires."""
CA_FILE = "ELASTICJOB_CA_FILE"
"""Path of the certificates that the server is checked against; set exactly when the server speaks TLS."""
MIN_NODES = "ELASTICJOB_MIN_NODES"
MAX_NODES = "ELASTICJOB_MAX_NODES"
NPROC_PER_NODE = "ELASTICJOB_NPROC_PER_NODE"
"""Processes to start on a node: a number, or `auto`, `gpu` or `cpu` to count the devices there."""
ROUND = "ELASTICJOB_ROUND"
"""Set for the training process: number of the round it belongs to. Only ever rises, so that storage can be fenced."""
ROUND_FILE = "ELASTICJOB_ROUND_FILE"
"""Path of a file that holds the newest round of the node: a process that has outlived its round finds out there."""
RESTART_COUNT = "ELASTICJOB_RESTART_COUNT"
"""Set by the launcher: how often the workers of this node were started before."""

NPROC_WORDS = frozenset({"auto", "gpu", "cpu"})


@dataclass(frozen=True, kw_only=True)
class NodeEnvironment:
    """The identity of this node and where its rendezvous is.

    Args:
        endpoint: Where the rendezvous server listens.
        run_id: Identifies the run; the UID of the ElasticJob.
        node_index: Stable index of the node.
        pod_name: Name of the pod, for messages.
        pod_uid: UID of the pod, which is the identity of the node.
        pod_ip: Address under which the other nodes reach this one, or empty to find it out.
        token_file: Where the caller's token is, or None to send none.
        ca_file: Certificates to check the server against, or None for those of the system.
        min_nodes: Fewest nodes that train.
        max_nodes: Most nodes that train.
        nproc_per_node: Processes to start here: a number, `auto`, `gpu` or `cpu`.
    """

    endpoint: ServerEndpoint
    run_id: str
    node_index: int = 0
    pod_name: str = ""
    pod_uid: str = ""
    pod_ip: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    min_nodes: int = 1
    max_nodes: int = 1
    nproc_per_node: str = "1"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "NodeEnvironment":
        """Read and check the variables. Only endpoint and run id are required.

        Raises:
            ValueError: A variable is missing or has a value that cannot work. The message names both.
        """
        min_nodes = _integer(environ, MIN_NODES, default=1, least=1)
        return cls(
            endpoint=_endpoint(environ),
            run_id=_required(environ, RUN_ID),
            node_index=_integer(environ, NODE_INDEX, default=0, least=0),
            pod_name=environ.get(POD_NAME, ""),
            pod_uid=environ.get(POD_UID, ""),
            pod_ip=environ.get(POD_IP, ""),
            token_file=_path(environ, TOKEN_FILE),
            ca_file=_path(environ, CA_FILE),
            min_nodes=min_nodes,
            max_nodes=_integer(environ, MAX_NODES, default=min_nodes, least=min_nodes),
            nproc_per_node=_nproc(environ),
        )


def new_incarnation() -> str:
    """A name for this process that no other process, not even a restarted one of the same pod, will ever have."""
    return uuid.uuid4().hex


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(f"environment variable {name} is not set; the operator sets it in the pods of an ElasticJob")
    return value


def _endpoint(environ: Mapping[str, str]) -> ServerEndpoint:
    try:
        return ServerEndpoint.parse(_required(environ, ENDPOINT), tls=CA_FILE in environ)
    except ValueError as error:
        raise ValueError(f"environment variable {ENDPOINT}: {error}") from error


def _integer(environ: Mapping[str, str], name: str, *, default: int, least: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ValueError(f"environment variable {name} is {text!r}; it must be a whole number of at least {least}")
    return int(text)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "").strip()
    return Path(text) if text else None


def _nproc(environ: Mapping[str, str]) -> str:
    text = environ.get(NPROC_PER_NODE, "").strip().lower() or "1"
    if text in NPROC_WORDS:
        return text
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise ValueError(
            f"environment variable {NPROC_PER_NODE} is {text!r}; it must be a positive number, auto, gpu or cpu"
        )
    return text
