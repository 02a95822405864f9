"""The same job, with its state in a ConfigMap, in etcd with and without TLS, and in an etcd of old."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from elasticjob.rendezvous.encoding import decode
from elasticjob.rendezvous.state import State
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.network import CONTROL_PLANE_ADDRESS
from tests.e2e.etcd_states import PREFIX, ask, in_etcd
from tests.e2e.jobs import FOREVER, Object, job, launched
from tests.e2e.space import Space, is_formed, messages, ranks, round_of
from tests.e2e.suite import ETCD_DIRECTORY, NAMESPACE, Suite

pytestmark = pytest.mark.timeout(400, func_only=True)

NOBODY_LISTENS = f"{CONTROL_PLANE_ADDRESS}:9"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a job's state is kept.

    Args:
        read: The state of a run as it is stored there, if it is.
    """

    backend: str
    conf: dict[str, str]
    read: Callable[[Space, str, str], bytes | None]


def in_config_map(space: Space, name: str, run_id: str) -> bytes | None:
    found = space.get("configmaps", "-l", f"elasticjob.dev/job-uid={run_id}")["items"]
    assert [one["metadata"]["name"] for one in found] in ([], [f"{name}-rendezvous"])
    return base64.b64decode(found[0]["binaryData"]["state"]) if found else None


@pytest.fixture(scope="module")
def etcd_for_pods() -> Iterator[EtcdServer]:
    """A current etcd that pods can reach."""
    with etcd_server(f"podetcd3-{os.getpid()}", v2=False, address=CONTROL_PLANE_ADDRESS) as server:
        yield server


@pytest.fixture(scope="module")
def etcd_v2_for_pods() -> Iterator[EtcdServer]:
    """An etcd with the v2 API that pods can reach."""
    with etcd_server(f"podetcd2-{os.getpid()}", v2=True, address=CONTROL_PLANE_ADDRESS) as server:
        yield server


@pytest.fixture
def config_map(suite: Suite) -> Place:
    """Nothing to configure."""
    return Place(backend="kubernetes", conf={}, read=in_config_map)


@pytest.fixture
def etcd(suite: Suite, etcd_for_pods: EtcdServer) -> Place:
    """One key of the v3 API."""

    def read(_: Space, __: str, run_id: str) -> bytes | None:
        return in_etcd(etcd_for_pods, run_id)

    return Place(backend="etcd", conf={"endpoint": etcd_for_pods.endpoint, "prefix": PREFIX}, read=read)


@pytest.fixture
def etcd_with_tls(suite: Suite) -> Iterator[Place]:
    """The same, of a server that speaks TLS only, and only to whoever shows a certificate of its authority."""
    name = f"podetcdtls-{os.getpid()}"
    with etcd_server(name, v2=False, address=CONTROL_PLANE_ADDRESS, certificates=suite.etcd) as server:

        def read(_: Space, __: str, run_id: str) -> bytes | None:
            return in_etcd(server, run_id)

        conf = {
            "endpoint": server.endpoint,
            "prefix": PREFIX,
            "protocol": "https",
            "ca_cert": f"{ETCD_DIRECTORY}/ca.crt",
            "ssl_cert": f"{ETCD_DIRECTORY}/tls.crt",
            "ssl_cert_key": f"{ETCD_DIRECTORY}/tls.key",
        }
        yield Place(backend="etcd", conf=conf, read=read)


@pytest.fixture
def etcd_v2(suite: Suite, etcd_v2_for_pods: EtcdServer) -> Place:
    """One key of the v2 API."""

    def read(_: Space, __: str, run_id: str) -> bytes | None:
        nodes = ask(etcd_v2_for_pods, "/v2/keys/?recursive=true")["node"].get("nodes", [])
        node = next((one for one in _files(nodes) if one["key"] == f"{PREFIX}/rendezvous/{run_id}"), None)
        if node is None:
            return None
        assert "ttl" not in node, "the state would be gone one day, while the job runs"
        return base64.b64decode(node["value"])

    return Place(backend="etcd-v2", conf={"endpoint": etcd_v2_for_pods.endpoint, "prefix": PREFIX}, read=read)


def _files(nodes: list[Object]) -> Iterator[Object]:
    for node in nodes:
        yield from _files(node.get("nodes", [])) if node.get("dir") else (node,)


@pytest.fixture(params=["config_map", "etcd", "etcd_with_tls", "etcd_v2"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each backend in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


def kept_at(suite: Suite, backend: str, conf: dict[str, str], *, name: str = "kept") -> Object:
    body = job(name, image=suite.image, command=launched(FOREVER), replicas=2, minimum=1, maximum=2)
    body["spec"]["rendezvous"] |= {"backend": backend, "conf": conf, "lastCallTimeoutSeconds": 30}
    return body


def operator_restarts(suite: Suite) -> dict[str, int]:
    pods = suite.kubectl.json("-n", NAMESPACE, "get", "pods")["items"]
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_the_state_is_where_the_job_says_and_outlives_the_operator(suite: Suite, space: Space, place: Place) -> None:
    space.apply(kept_at(suite, place.backend, place.conf))
    run_id = space.get("elasticjob", "kept")["metadata"]["uid"]

    def stored() -> State:
        data = place.read(space, "kept", run_id)
        assert data is not None
        return decode(data, source=place.backend)

    first = space.wait_training("kept", nodes=2, seconds=120)
    assert first["rendezvous"]["backend"] == place.backend
    assert (stored().round, stored().complete) == (round_of(first), True)
    assert (in_config_map(space, "kept", run_id) is not None) == (place.backend == "kubernetes")
    pods, epoch = space.pod_uids("kept"), first["rendezvous"]["epoch"]

    suite.delete_leader()

    second = space.wait_status(
        "kept",
        "the next operator to serve the run",
        lambda status: status["rendezvous"]["epoch"] > epoch and is_formed(status),
        seconds=120,
    )
    assert round_of(second) == round_of(first)
    assert ranks(second) == ranks(first)
    assert space.pod_uids("kept") == pods
    assert stored().epoch == second["rendezvous"]["epoch"]

    space.kubectl("delete", "pod", ranks(second)[0], "--grace-period=0", "--force")
    third = space.wait_training("kept", nodes=2, newer_than=round_of(second), seconds=120)
    assert stored().round == round_of(third)

    space.kubectl("delete", "elasticjob", "kept", "--timeout=50s")
    space.wait("the state to go with the job", lambda: place.read(space, "kept", run_id) is None, seconds=120)


@pytest.mark.parametrize(
    ("backend", "endpoint", "cause"),
    [
        ("etcd", NOBODY_LISTENS, "refused"),
        ("etcd-v2", NOBODY_LISTENS, "refused"),
        ("etcd", "no-such-host.invalid:2379", "resol"),
    ],
)
def test_an_etcd_that_cannot_be_reached_is_named_with_its_cause(
    suite: Suite, space: Space, backend: str, endpoint: str, cause: str
) -> None:
    restarts = operator_restarts(suite)
    space.apply(kept_at(suite, backend, {"endpoint": endpoint}), kept_at(suite, "kubernetes", {}, name="other"))

    status = space.wait_status(
        "kept", "the endpoint in a condition", lambda status: endpoint in messages(status), seconds=120
    )

    assert cause in messages(status)
    assert status.get("phase") not in ("Failed", "Succeeded")
    space.wait_training("other", nodes=2, seconds=120)
    assert space.status("kept").get("phase") not in ("Failed", "Succeeded")
    assert operator_restarts(suite) == restarts


def test_a_job_begins_once_its_endpoint_is_corrected(suite: Suite, space: Space, etcd: Place) -> None:
    space.apply(kept_at(suite, "etcd", {**etcd.conf, "endpoint": NOBODY_LISTENS}))
    space.wait_status(
        "kept", "the endpoint in a condition", lambda status: NOBODY_LISTENS in messages(status), seconds=120
    )

    space.apply(kept_at(suite, "etcd", etcd.conf))

    space.wait_training("kept", nodes=2, seconds=120)


def test_a_state_that_cannot_be_read_any_more_is_no_reason_to_forget_the_round(
    suite: Suite, space: Space, etcd: Place, etcd_for_pods: EtcdServer
) -> None:
    space.apply(kept_at(suite, "etcd", etcd.conf))
    before = space.wait_training("kept", nodes=2, seconds=120)
    pods = space.pod_uids("kept")

    etcd_for_pods.stop()
    try:
        suite.delete_leader()
        during = space.wait_status(
            "kept",
            "the endpoint in a condition",
            lambda status: etcd_for_pods.endpoint in messages(status),
            seconds=120,
        )
        assert round_of(during) == round_of(before)
        assert ranks(during) == ranks(before)
        assert during.get("phase") == "Running"
    finally:
        etcd_for_pods.start()

    after = space.wait_status(
        "kept",
        "the run to be served again",
        lambda status: status["rendezvous"]["epoch"] > before["rendezvous"]["epoch"] and is_formed(status),
        seconds=120,
    )
    assert round_of(after) == round_of(before)
    assert space.pod_uids("kept") == pods


def test_a_setting_that_cannot_be_used_ends_the_job_and_is_named(suite: Suite, space: Space) -> None:
    space.apply(kept_at(suite, "etcd", {"endpoint": NOBODY_LISTENS, "protocol": "gopher"}))

    status = space.wait_phase("kept", "Failed", seconds=120)

    assert "protocol must be one of http, https, not 'gopher'" in messages(status)
