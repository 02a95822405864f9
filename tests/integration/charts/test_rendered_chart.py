"""What Helm makes of the chart for different values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticjob.operator.leadership.label import LABEL
from elasticjob.operator.settings import from_environment
from tests.cluster.errors import ClusterError
from tests.cluster.kubectl import Helm

CHART = str(Path(__file__).resolve().parents[3] / "charts" / "elasticjob")
DIGEST = "sha256:" + "0123456789abcdef" * 4

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


def kinds(objects: Objects) -> list[str]:
    return sorted(one["kind"] for one in objects)


def only(objects: Objects, kind: str) -> dict[str, Any]:
    found = [one for one in objects if one["kind"] == kind]
    assert len(found) == 1
    return found[0]


def pod_spec(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def environment(objects: Objects) -> dict[str, str]:
    """The operator's variables, with those that Kubernetes fills in."""
    fields = {"metadata.namespace": "system", "metadata.name": "elasticjob-1"}
    return {
        one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in pod_spec(objects)["containers"][0]["env"]
    }


def test_the_chart_passes_strict_lint(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("iamge.tag=x", "additional properties 'iamge' not allowed"),
        ("image.tga=x", "at '/image': additional properties 'tga' not allowed"),
        ("rbac.scope=cluster", "at '/rbac': additional properties 'scope' not allowed"),
        ("replicaCount=two", "at '/replicaCount': got string, want integer"),
        ("scope=cluter", "at '/scope': value must be one of 'cluster', 'namespace'"),
        ("watchNamespaces={Team_A}", "at '/watchNamespaces/0'"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
    ],
)
def test_a_wrong_value_is_refused_and_named(render: Render, setting: str, complaint: str) -> None:
    with pytest.raises(ClusterError, match="values don't meet the specifications") as refused:
        render(setting)

    assert complaint in str(refused.value)


def test_values_of_parent_charts_are_let_through(render: Render) -> None:
    assert render("global.somebodyElses=1")


def test_the_operator_understands_the_settings_that_it_gets(render: Render) -> None:
    objects = render("scope=namespace", "watchNamespaces={team-a,team-b}", "logLevel=debug", release="blue")

    settings = from_environment(environment(objects))

    assert settings.namespace == "system"
    assert settings.watch_namespaces == ("team-a", "team-b")
    assert settings.log_level == "DEBUG"
    assert settings.lease_name == "blue-elasticjob"
    service = only(objects, "Service")
    port = service["spec"]["ports"][0]["port"]
    assert settings.endpoint == f"{service['metadata']['name']}.{service['metadata']['namespace']}:{port}"


def test_all_images_come_from_the_registry_that_is_asked_for(render: Render) -> None:
    objects = render(
        "global.imageRegistry=reg.local:5000",
        f"image.digest={DIGEST}",
        "imagePullSecrets[0].name=login",
        "global.imagePullSecrets[0].name=shared",
    )

    image = f"reg.local:5000/elasticjob@{DIGEST}"
    settings = from_environment(environment(objects))
    assert [one["image"] for one in pod_spec(objects)["containers"]] == [image]
    assert pod_spec(objects)["imagePullSecrets"] == [{"name": "shared"}, {"name": "login"}]
    # The init container of jobs has the same image and must be able to pull it, too.
    assert settings.image == image
    assert settings.image_pull_secrets == ("shared", "login")


def test_the_image_is_the_released_one_unless_another_is_named(render: Render) -> None:
    assert pod_spec(render())["containers"][0]["image"] == "elasticjob:0.1.0"
    named = render("image.registry=ghcr.io/acme", "image.repository=ej", "image.tag=main")
    assert pod_spec(named)["containers"][0]["image"] == "ghcr.io/acme/ej:main"


def test_certificates_for_etcd_can_be_mounted(render: Render) -> None:
    settings = (
        "extraVolumes[0].name=etcd",
        "extraVolumes[0].secret.secretName=etcd-client",
        "extraVolumeMounts[0].name=etcd",
        "extraVolumeMounts[0].mountPath=/etcd",
    )
    pod = pod_spec(render(*settings))

    assert {"name": "etcd", "secret": {"secretName": "etcd-client"}} in pod["volumes"]
    assert {"name": "etcd", "mountPath": "/etcd"} in pod["containers"][0]["volumeMounts"]


def test_a_namespaced_operator_needs_nothing_that_is_cluster_wide(render: Render) -> None:
    objects = render("scope=namespace", "watchNamespaces={team-a,team-b}")

    assert kinds(objects) == sorted(["Deployment", "Service", "ServiceAccount", *["Role"] * 3, *["RoleBinding"] * 3])
    roles = [one for one in objects if one["kind"] == "Role"]
    assert sorted(one["metadata"]["namespace"] for one in roles) == ["system", "team-a", "team-b"]


def test_a_namespaced_operator_serves_its_own_namespace_by_default(render: Render) -> None:
    assert from_environment(environment(render("scope=namespace"))).watch_namespaces == ("system",)


def test_namespaced_and_cluster_wide_operators_have_the_same_rights_over_jobs(render: Render) -> None:
    cluster_wide = next(one for one in render() if one["kind"] == "ClusterRole")
    namespaced = next(
        one
        for one in render("scope=namespace", "watchNamespaces={team-a}")
        if one["kind"] == "Role" and one["metadata"]["namespace"] == "team-a"
    )

    assert cluster_wide["rules"] == namespaced["rules"]


def test_no_rule_has_a_wildcard_or_reaches_all_secrets(render: Render) -> None:
    rules = [rule for one in render() if one["kind"] in ("Role", "ClusterRole") for rule in one["rules"]]

    assert "*" not in json.dumps(rules)
    for rule in rules:
        reads_secrets = "secrets" in rule.get("resources", ()) and rule["verbs"] != ["create"]
        assert rule.get("resourceNames") or not reads_secrets


def test_two_releases_of_one_name_share_no_object(render: Render) -> None:
    def identities(namespace: str) -> set[tuple[str, str, str]]:
        objects = render("flowSchema.enabled=true", namespace=namespace)
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}

    assert not identities("blue") & identities("green")


def test_jobs_find_the_next_release_at_the_address_of_the_last(render: Render) -> None:
    def service(release: str) -> tuple[str, list[dict[str, Any]]]:
        found = only(render(release=release), "Service")
        return found["metadata"]["name"], found["spec"]["ports"]

    assert service("blue") == service("green")


def test_workers_reach_the_leader_alone(render: Render) -> None:
    objects = render("replicaCount=2")
    selector = only(objects, "Service")["spec"]["selector"]
    pods = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]

    assert selector.pop(LABEL) == "true"
    assert selector.items() <= pods.items()
    assert LABEL not in pods


def test_a_standby_prefers_another_machine(render: Render) -> None:
    assert "affinity" not in pod_spec(render())
    assert "podAntiAffinity" in pod_spec(render("replicaCount=2"))["affinity"]


def test_optional_objects_appear_when_they_are_asked_for(render: Render) -> None:
    parts = ("metrics.podMonitor", "metrics.alerts", "networkPolicy", "flowSchema")
    asked = render(*(f"{part}.enabled=true" for part in parts))

    assert set(kinds(asked)) - set(kinds(render())) == {"PodMonitor", "PrometheusRule", "NetworkPolicy", "FlowSchema"}


def test_the_dashboard_comes_as_a_config_map_that_grafana_finds(render: Render) -> None:
    asked = only(render("metrics.dashboard.enabled=true"), "ConfigMap")

    assert asked["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(asked["data"]["elasticjob.json"]) == json.loads(
        (Path(CHART) / "dashboards" / "elasticjob.json").read_text()
    )
    assert "ConfigMap" not in kinds(render())


def test_own_labels_and_annotations_reach_every_object(render: Render) -> None:
    objects = render(
        "commonLabels.team=ml",
        "commonAnnotations.owner=me",
        "metrics.podMonitor.enabled=true",
        "metrics.dashboard.enabled=true",
        "metrics.alerts.enabled=true",
        "networkPolicy.enabled=true",
        "flowSchema.enabled=true",
    )

    assert all(one["metadata"]["labels"]["team"] == "ml" for one in objects)
    assert all(one["metadata"]["annotations"]["owner"] == "me" for one in objects)


def test_the_definition_is_installed_with_the_chart_but_is_no_part_of_a_release(render: Render) -> None:
    # So that `helm uninstall` can never delete it, and with it every job.
    assert "CustomResourceDefinition" not in kinds(render())
    assert "CustomResourceDefinition" in kinds(render(flags=("--include-crds",)))
