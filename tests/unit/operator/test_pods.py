"""The objects of a job as they are sent to the API server."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticjob.operator.model import ElasticJob
from elasticjob.operator.pods import build_pod, build_service, selector, state_config_map_metadata
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.environment import NodeEnvironment
from tests.unit.operator.world import FACTS, UID, job, job_body, template

Body = dict[str, Any]
TLS = replace(FACTS, ca_bundle="-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n")
RICH: Body = {
    "metadata": {
        "labels": {"team": "vision", "app.kubernetes.io/managed-by": "argo"},
        "annotations": {"prometheus.io/scrape": "true"},
        "futureMeta": {"a": 1},
    },
    "spec": {
        "schedulerName": "volcano",
        "priorityClassName": "high",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "imagePullSecrets": [{"name": "mine"}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccountName": "trainer",
        "futureField": {"deep": [{"er": True}]},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "initContainers": [
            {"name": "first", "image": "a"},
            {"name": "second", "image": "b", "restartPolicy": "Always"},
        ],
        "containers": [
            {"name": "mesh-proxy", "image": "proxy", "env": [{"name": "A", "value": "1"}]},
            {
                "name": "worker",
                "image": "train",
                "env": [{"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "futureProbe": {"every": "1s"},
            },
        ],
    },
}


def pod(facts: Any = FACTS, *, index: int = 1, attempt: int = 2, **spec: Any) -> Body:
    made = job(**spec)
    assert made.spec is not None
    return copy.deepcopy(dict(build_pod(made, made.spec, facts, index=index, attempt=attempt)))


def pod_of(users: Body, facts: Any = FACTS, **spec: Any) -> Body:
    return pod(facts, template=users, **spec)


def container(body: Body, name: str = "worker") -> Body:
    found: Body = next(one for one in body["spec"]["containers"] if one["name"] == name)
    return found


def env(body: Body, name: str = "worker") -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(body, name).get("env", [])}


def with_env(*variables: Body) -> Body:
    return {"spec": {"containers": [{"name": "worker", "env": list(variables)}]}}


def missing(users: Any, sent: Any, path: str = "") -> list[str]:
    """Paths of the user's tree that did not arrive as they were. Lists may be longer."""
    if isinstance(users, dict):
        return [
            lost
            for name, value in users.items()
            for lost in (missing(value, sent[name], f"{path}.{name}") if name in sent else [f"{path}.{name}"])
        ]
    if isinstance(users, list):
        left = [item for item in sent if isinstance(item, dict) and "name" in item]
        by_name = {item["name"]: item for item in left}
        return [
            lost
            for number, item in enumerate(users)
            for lost in missing(
                item,
                by_name.get(item["name"]) if isinstance(item, dict) and "name" in item else sent[number],
                f"{path}[{number}]",
            )
        ]
    return [] if users == sent else [path]


def test_every_field_of_the_user_arrives_unchanged() -> None:
    assert missing(RICH, pod_of(RICH)) == []


def test_the_template_itself_is_left_alone() -> None:
    users = copy.deepcopy(RICH)
    pod_of(users)
    assert users == RICH


def test_name_and_labels_say_node_and_attempt() -> None:
    metadata = pod()["metadata"]
    assert metadata["name"] == "digits-1-2"
    assert metadata["namespace"] == "train"
    assert metadata["labels"] == {
        "app.kubernetes.io/managed-by": "elasticjob",
        "elasticjob.dev/job-name": "digits",
        "elasticjob.dev/job-uid": UID,
        "elasticjob.dev/node-index": "1",
        "elasticjob.dev/attempt": "2",
    }


def test_children_are_controlled_by_the_job_and_hold_its_deletion() -> None:
    owner = {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ElasticJob",
        "name": "digits",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for metadata in (pod()["metadata"], build_service(job())["metadata"], state_config_map_metadata(job())):
        assert metadata["ownerReferences"] == [owner]


def test_host_name_and_subdomain_give_each_node_a_stable_name() -> None:
    spec = pod()["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("digits-1", "digits")


def test_pods_are_never_restarted_unless_the_user_says_so() -> None:
    assert pod()["spec"]["restartPolicy"] == "Never"
    assert pod_of(template(restartPolicy="OnFailure"))["spec"]["restartPolicy"] == "OnFailure"


def test_the_service_is_headless_and_publishes_names_of_pods_that_are_not_ready() -> None:
    spec = build_service(job())["spec"]
    assert spec == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"elasticjob.dev/job-uid": UID},
    }


def test_the_selector_finds_exactly_the_pods_of_this_object() -> None:
    assert selector(UID) == f"elasticjob.dev/job-uid={UID}"


def test_the_state_config_map_is_named_after_the_job() -> None:
    assert state_config_map_metadata(job())["name"] == "digits-rendezvous"


def test_torchrun_is_configured_by_its_own_variables() -> None:
    found = env(pod(replicas=4, minReplicas=2, maxReplicas=8, nprocPerNode="gpu"))
    assert found["PET_RDZV_BACKEND"] == "elasticjob"
    assert found["PET_RDZV_ENDPOINT"] == "elasticjob-rendezvous.system.svc:8443"
    assert found["PET_RDZV_ID"] == UID
    assert found["PET_NNODES"] == "2:8"
    assert found["PET_NPROC_PER_NODE"] == "gpu"
    assert found["PET_MAX_RESTARTS"] == "1000000"
    assert found["PET_LOCAL_ADDR"] == "$(ELASTICJOB_POD_IP)"
    assert found["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert found["PET_RDZV_CONF"].startswith("join_timeout=600,last_call_timeout=30,close_timeout=30,")


def test_every_value_is_text() -> None:
    for variable in container(pod())["env"]:
        assert isinstance(variable.get("value", ""), str)


def test_the_worker_side_understands_what_it_is_told() -> None:
    values = {name: value for name, value in env(pod(TLS, replicas=4, minReplicas=2)).items() if isinstance(value, str)}
    read = NodeEnvironment.from_environ(
        {**values, "ELASTICJOB_POD_IP": "10.0.0.7", "ELASTICJOB_POD_NAME": "digits-1-2"}
    )
    assert (read.run_id, read.node_index, read.min_nodes, read.max_nodes) == (UID, 1, 2, 4)
    assert str(read.token_file) == "/elasticjob/identity/token"
    assert str(read.ca_file) == "/elasticjob/identity/ca.crt"


def test_the_identity_of_the_node_comes_from_the_pod_itself() -> None:
    found = env(pod())
    assert found["ELASTICJOB_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert found["ELASTICJOB_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_an_ipv6_endpoint_is_bracketed() -> None:
    found = env(pod(replace(FACTS, endpoint=ServerEndpoint(host="fd00::7", port=8443))))
    assert found["PET_RDZV_ENDPOINT"] == "[fd00::7]:8443"
    assert found["ELASTICJOB_ENDPOINT"] == "http://[fd00::7]:8443"


def test_only_the_worker_container_is_changed() -> None:
    body = pod_of(RICH)
    assert container(body, "mesh-proxy") == RICH["spec"]["containers"][0]
    assert "PET_NNODES" in env(body, "worker")


def test_the_worker_is_the_container_that_the_user_names() -> None:
    body = pod_of(RICH, workerContainer="mesh-proxy")
    assert "PET_NNODES" in env(body, "mesh-proxy")
    assert container(body, "worker") == RICH["spec"]["containers"][1]


def test_the_users_variables_stay_and_can_refer_to_ours() -> None:
    users = {"name": "LOGS", "value": "/logs/$(ELASTICJOB_NODE_INDEX)"}
    variables = container(pod_of(with_env(users)))["env"]
    assert users in variables
    names = [variable["name"] for variable in variables]
    assert names.index("ELASTICJOB_NODE_INDEX") < names.index("LOGS")


def test_no_variable_is_there_twice_even_if_admission_let_it_pass() -> None:
    variables = container(pod_of(with_env({"name": "PET_NNODES", "value": "1"}, {"name": "X", "value": "1"})))["env"]
    names = [variable["name"] for variable in variables]
    assert len(names) == len(set(names))
    assert {"name": "PET_NNODES", "value": "2:2"} in variables


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ((), [{"name": "PYTHONPATH", "value": "/elasticjob/lib"}]),
        (
            ({"name": "PYTHONPATH", "value": "/app:/lib"},),
            [{"name": "PYTHONPATH", "value": "/elasticjob/lib:/app:/lib"}],
        ),
        (({"name": "PYTHONPATH", "value": ""},), [{"name": "PYTHONPATH", "value": "/elasticjob/lib"}]),
        (({"name": "PYTHONPATH"},), [{"name": "PYTHONPATH", "value": "/elasticjob/lib"}]),
        (
            ({"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "p"}}},),
            [
                {"name": "ELASTICJOB_USER_PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "p"}}},
                {"name": "PYTHONPATH", "value": "/elasticjob/lib:$(ELASTICJOB_USER_PYTHONPATH)"},
            ],
        ),
    ],
)
def test_the_library_comes_before_the_users_python_path(users: tuple[Body, ...], expected: list[Body]) -> None:
    variables = container(pod_of(with_env(*users)))["env"]
    assert [one for one in variables if "PYTHONPATH" in one["name"]] == expected


def test_the_init_container_comes_last_and_satisfies_the_restricted_profile() -> None:
    init = pod_of(RICH, replace(FACTS, pull_policy="Never"))["spec"]["initContainers"]
    assert [one["name"] for one in init] == ["first", "second", "elasticjob-inject"]
    assert init[-1]["imagePullPolicy"] == "Never"
    assert init[-1]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_init_container_is_not_root_in_a_pod_that_is() -> None:
    init = pod_of(template(securityContext={"runAsUser": 0}))["spec"]["initContainers"][-1]
    assert init["securityContext"]["runAsUser"] == 65532


def test_an_image_that_ships_the_client_gets_nothing_injected() -> None:
    body = pod_of(with_env({"name": "PYTHONPATH", "value": "/app"}), inject=False)
    assert "initContainers" not in body["spec"]
    assert [volume["name"] for volume in body["spec"]["volumes"]] == ["elasticjob-identity", "elasticjob-round"]
    assert [mount["name"] for mount in container(body)["volumeMounts"]] == ["elasticjob-identity", "elasticjob-round"]
    assert env(body)["PYTHONPATH"] == "/app"


def test_pull_secrets_of_the_operator_join_those_of_the_user() -> None:
    facts = replace(FACTS, pull_secrets=("mine", "registry"))
    assert pod_of(RICH, facts)["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "registry"}]
    assert "imagePullSecrets" not in pod()["spec"]


def test_the_token_is_for_the_rendezvous_alone() -> None:
    identity = next(volume for volume in pod()["spec"]["volumes"] if volume["name"] == "elasticjob-identity")
    assert identity["projected"]["sources"] == [
        {"serviceAccountToken": {"audience": "elasticjob.dev/rendezvous", "expirationSeconds": 3600, "path": "token"}}
    ]


@pytest.mark.parametrize("inject", [True, False])
def test_the_number_of_the_round_has_a_file_that_the_worker_can_write(inject: bool) -> None:
    body = pod_of(template(), inject=inject)
    file = Path(env(body)["ELASTICJOB_ROUND_FILE"])
    (mount,) = (one for one in container(body)["volumeMounts"] if one["mountPath"] == str(file.parent))
    assert not mount.get("readOnly")
    (volume,) = (one for one in body["spec"]["volumes"] if one["name"] == mount["name"])
    assert volume["emptyDir"] == {"sizeLimit": "1Mi"}


def test_certificates_reach_the_pod_without_another_object() -> None:
    body = pod(TLS)
    assert body["metadata"]["annotations"]["elasticjob.dev/ca-bundle"] == TLS.ca_bundle
    identity = next(volume for volume in body["spec"]["volumes"] if volume["name"] == "elasticjob-identity")
    reference = {"fieldPath": "metadata.annotations['elasticjob.dev/ca-bundle']"}
    assert {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": reference}]}} in identity["projected"]["sources"]
    assert env(body)["ELASTICJOB_CA_FILE"] == "/elasticjob/identity/ca.crt"
    assert "ELASTICJOB_CA_FILE" not in env(pod())


def test_with_host_network_names_of_the_cluster_still_resolve() -> None:
    assert pod_of(template(hostNetwork=True))["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod_of(template(hostNetwork=True, dnsPolicy="Default"))["spec"]["dnsPolicy"] == "Default"
    assert "dnsPolicy" not in pod()["spec"]


def test_no_name_carries_a_cluster_domain() -> None:
    assert "cluster.local" not in str(pod())


def test_the_last_words_of_a_worker_come_from_its_log_unless_the_user_decided() -> None:
    assert container(pod())["terminationMessagePolicy"] == "FallbackToLogsOnError"
    users = {"spec": {"containers": [{"name": "worker", "terminationMessagePolicy": "File"}]}}
    assert container(pod_of(users))["terminationMessagePolicy"] == "File"


def test_the_longest_name_still_fits() -> None:
    made = ElasticJob.from_dict(job_body(name="a" * 48))
    assert made.spec is not None
    body = build_pod(made, made.spec, FACTS, index=9999, attempt=99_999_999)
    assert len(body["metadata"]["name"]) <= 63
    assert len(body["spec"]["hostname"]) <= 63
