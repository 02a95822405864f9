"""A real Prometheus scrapes a real operator as the chart says, and what the chart asks it for is there.

Meanwhile a job forms, loses rank 0 and forms again.
"""

import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.kubectl import Helm
from tests.integration.charts.conftest import CHART
from tests.integration.charts.prometheus import Prometheus, prometheus, scrape_config
from tests.integration.operator.operators import OperatorProcess, start_process
from tests.integration.reading.site import Site, eventually
from tests.unit.crds.schema import PATH

pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.xdist_group("metrics")]

Objects = list[dict[str, Any]]
DASHBOARD = json.loads((Path(CHART) / "dashboards" / "elasticjob.json").read_text())
RANGE = "10m"
POD = "elasticjob-1"


def queries() -> list[str]:
    """Every query of the dashboard, over a range that Grafana would put in."""
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return [one.replace("$__rate_interval", RANGE).replace("$__range", RANGE) for one in targets]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    reserved = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in reserved]
    for one in reserved:
        one.close()
    return ports


def only(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


@pytest.fixture(scope="module")
def objects(helm: Helm, monitored_namespace: str) -> Objects:
    """The chart as it is installed with all that watches the operator."""
    sets = [f"--set=metrics.{part}.enabled=true" for part in ("podMonitor", "dashboard", "alerts")]
    text = helm("template", "elasticjob", CHART, "--namespace", monitored_namespace, *sets)
    return [one for one in yaml.safe_load_all(text) if one]


@pytest.fixture(scope="module")
def monitored_namespace(control_plane: Cluster) -> Iterator[str]:
    control_plane.kubectl("apply", "--server-side", "-f", str(PATH))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticjob.dev", "--timeout=30s")
    with control_plane.namespace() as namespace:
        yield namespace


def stand_in(deployment: dict[str, Any], port: int) -> dict[str, Any]:
    """The operator's pod as the chart makes it, but with the port that the process listens on."""
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    for one in container["ports"]:
        if one["name"] == "health":
            one["containerPort"] = port
    kept = {"name": container["name"], "image": container["image"], "ports": container["ports"]}
    metadata = {"name": POD, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [kept]}}


def monitored(cluster: Cluster, objects: Objects, port: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The PodMonitor, and the pods that the API server selects by its labels."""
    monitor = only(objects, "PodMonitor")
    namespace, pod = monitor["metadata"]["namespace"], stand_in(only(objects, "Deployment"), port)
    cluster.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(pod))
    address = json.dumps({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}})
    cluster.kubectl("-n", namespace, "patch", "pod", POD, "--subresource=status", "--type=merge", "-p", address)
    selector = ",".join(f"{name}={value}" for name, value in monitor["spec"]["selector"]["matchLabels"].items())
    found: list[dict[str, Any]] = cluster.kubectl.json("-n", namespace, "get", "pods", "-l", selector)["items"]
    return monitor, found


def start_operator(cluster: Cluster, namespace: str, *, health: int, rendezvous: int) -> OperatorProcess:
    variables = {
        "health_port": str(health),
        "rendezvous_port": str(rendezvous),
        "rendezvous_endpoint": f"127.0.0.1:{rendezvous}",
        "rendezvous_tls": "false",
    }
    return start_process(cluster.kubeconfig, namespace, POD, variables)


@pytest.fixture(scope="module")
def watched(
    control_plane: Cluster, monitored_namespace: str, objects: Objects, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, Prometheus]]:
    """An operator that Prometheus scrapes already, and a site for its jobs."""
    health, rendezvous, own = free_ports(3)
    scrape = scrape_config(*monitored(control_plane, objects, health))
    groups = only(objects, "PrometheusRule")["spec"]["groups"]
    operator = start_operator(control_plane, monitored_namespace, health=health, rendezvous=rendezvous)
    directory = tmp_path_factory.mktemp("prometheus")
    site = Site(cluster=control_plane, namespace=monitored_namespace, port=rendezvous, directory=directory)
    try:
        with prometheus(directory, port=own, scrape=scrape, groups=groups) as server:
            eventually(lambda: bool(server.query("elasticjob_leader == 1")), what="Prometheus has scraped the leader")
            yield site, server
            site.remove()
    finally:
        operator.kill()


@pytest.fixture(scope="module")
def after_a_job(watched: tuple[Site, Prometheus]) -> Prometheus:
    """Prometheus, after a job has formed, lost rank 0 and formed again."""
    site, server = watched
    site.create(replicas=2, minReplicas=1, rendezvous={"lastCallTimeoutSeconds": 300})
    site.run("digits-0-0", "digits-1-0")
    site.join("digits-0-0", "digits-1-0")
    site.wait(round=1, state="Formed", participants=2)
    site.exit("digits-0-0", 137, "OOMKilled")
    site.run("digits-0-1")
    site.join("digits-0-1")
    site.wait(round=2, state="Formed", participants=2)
    return server


@pytest.mark.parametrize("query", queries())
def test_a_query_of_the_dashboard_returns_data(after_a_job: Prometheus, query: str) -> None:
    def has_data() -> bool:
        return any(not math.isnan(value) for value in after_a_job.values(query))

    eventually(has_data, what=f"data for {query}")


@pytest.mark.parametrize(("cause", "rounds"), [("first", 1), ("loss", 1), ("failure", 0)])
def test_rounds_are_counted_by_their_cause(after_a_job: Prometheus, cause: str, rounds: int) -> None:
    query = f'elasticjob_rendezvous_rounds_total{{cause="{cause}"}}'
    eventually(lambda: after_a_job.values(query) == [rounds], what=f"{query} is {rounds}")


def test_the_first_round_of_a_cause_is_seen_as_an_increase(after_a_job: Prometheus) -> None:
    query = f'increase(elasticjob_rendezvous_rounds_total{{cause="loss"}}[{RANGE}]) > 0'
    eventually(lambda: bool(after_a_job.query(query)), what=query)


def test_alerting_rules_are_healthy_and_silent_while_all_is_well(after_a_job: Prometheus) -> None:
    def all_well() -> bool:
        rules = after_a_job.rules()
        return bool(rules) and all((rule["health"], rule["state"]) == ("ok", "inactive") for rule in rules)

    eventually(all_well, what="all rules are evaluated and silent")
