"""The environment of a worker pod."""

from pathlib import Path

import pytest

from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.environment import NodeEnvironment, new_incarnation

MINIMAL = {"ELASTICJOB_ENDPOINT": "http://operator:8443", "ELASTICJOB_RUN_ID": "uid-1"}


def test_endpoint_and_run_id_are_enough() -> None:
    node = NodeEnvironment.from_environ(MINIMAL)
    assert node == NodeEnvironment(endpoint=ServerEndpoint(host="operator", port=8443), run_id="uid-1")


def test_everything_that_the_operator_sets_is_read() -> None:
    node = NodeEnvironment.from_environ(
        {
            **MINIMAL,
            "ELASTICJOB_ENDPOINT": "https://[fd00::1]:8443",
            "ELASTICJOB_NODE_INDEX": "3",
            "ELASTICJOB_POD_NAME": "digits-3-0",
            "ELASTICJOB_POD_UID": "uid-2",
            "ELASTICJOB_POD_IP": "fd00::9",
            "ELASTICJOB_TOKEN_FILE": "/elasticjob/identity/token",
            "ELASTICJOB_CA_FILE": "/elasticjob/identity/ca.crt",
            "ELASTICJOB_MIN_NODES": "2",
            "ELASTICJOB_MAX_NODES": "8",
            "ELASTICJOB_NPROC_PER_NODE": "auto",
        }
    )
    assert node.endpoint == ServerEndpoint(host="fd00::1", port=8443, tls=True)
    assert (node.node_index, node.pod_name, node.pod_uid, node.pod_ip) == (3, "digits-3-0", "uid-2", "fd00::9")
    assert node.token_file == Path("/elasticjob/identity/token")
    assert node.ca_file == Path("/elasticjob/identity/ca.crt")
    assert (node.min_nodes, node.max_nodes, node.nproc_per_node) == (2, 8, "auto")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ELASTICJOB_ENDPOINT", ""),
        ("ELASTICJOB_ENDPOINT", "operator:70000"),
        ("ELASTICJOB_RUN_ID", "  "),
        ("ELASTICJOB_NODE_INDEX", "-1"),
        ("ELASTICJOB_NODE_INDEX", "two"),
        ("ELASTICJOB_MIN_NODES", "0"),
        ("ELASTICJOB_MAX_NODES", "1"),
        ("ELASTICJOB_NPROC_PER_NODE", "0"),
        ("ELASTICJOB_NPROC_PER_NODE", "many"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name_and_value(name: str, value: str) -> None:
    environ = {**MINIMAL, "ELASTICJOB_MIN_NODES": "2", "ELASTICJOB_MAX_NODES": "2", name: value}
    with pytest.raises(ValueError, match=name) as caught:
        NodeEnvironment.from_environ(environ)
    assert value.strip() in str(caught.value)


def test_no_two_processes_share_an_incarnation() -> None:
    assert new_incarnation() != new_incarnation()
