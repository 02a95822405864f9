"""What cannot work is refused with the field and the limit; what can work arrives as it was written."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError

Apply = Callable[..., dict[str, Any]]
Refusal = Callable[..., str]


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", "image": "registry.local/train:1"}], **spec}}


def with_env(container: str, *names: str, first: str = "") -> dict[str, Any]:
    env = [{"name": name, "value": "1"} for name in names]
    before = [{"name": first, "image": "registry.local/proxy:1"}] if first else []
    return {"spec": {"containers": [*before, {"name": container, "image": "registry.local/train:1", "env": env}]}}


def test_a_template_is_all_that_a_job_needs(apply: Apply) -> None:
    spec = apply()["spec"]
    assert spec["replicas"] == 1
    assert spec["nprocPerNode"] == 1
    assert spec["restartPolicy"] == {"maxRestarts": 3}
    assert spec["rendezvous"]["backend"] == "kubernetes"
    assert spec["rendezvous"]["joinTimeoutSeconds"] == 600
    assert spec["suspend"] is False
    assert spec["inject"] is True


@pytest.mark.parametrize("length", [1, 40, 48])
def test_names_that_fit_are_accepted(apply: Apply, length: int) -> None:
    assert apply("a" * length)["metadata"]["name"] == "a" * length


@pytest.mark.parametrize("length", [49, 57, 63, 64, 253])
def test_names_that_are_too_long_are_refused_with_the_limit(refusal: Refusal, length: int) -> None:
    assert f"metadata.name must have at most 48 characters, not {length}" in refusal("a" * length)


@pytest.mark.parametrize("name", ["a.b.c", "1job"])
def test_names_that_no_service_can_have_are_refused(refusal: Refusal, name: str) -> None:
    assert "(a DNS-1035 label): the job's Service has its name" in refusal(name)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"replicas": 0},
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
        ),
        ({"replicas": 10001}, "should be less than or equal to 10000"),
        ({"replicas": 1, "minReplicas": 2}, "spec.minReplicas (2) must not exceed spec.replicas (1)"),
        ({"replicas": 5, "maxReplicas": 4}, "spec.replicas (5) must not exceed spec.maxReplicas (4)"),
        ({"nprocPerNode": "many"}, "spec.nprocPerNode must be a positive number, auto, gpu or cpu"),
        ({"nprocPerNode": 0}, "spec.nprocPerNode must be a positive number, auto, gpu or cpu"),
        ({"rendezvous": {"backend": "c10d"}}, 'supported values: "kubernetes", "etcd", "etcd-v2"'),
        ({"rendezvous": {"joinTimeoutSeconds": 0}}, "spec.rendezvous.joinTimeoutSeconds"),
        ({"restartPolicy": {"maxRestarts": -1}}, "spec.restartPolicy.maxRestarts"),
        (
            {"restartPolicy": {"rules": [{"action": "Count"}]}},
            "a rule must have either onExitCodes or onPodConditions",
        ),
        (
            {"restartPolicy": {"rules": [{"action": "Retry", "onPodConditions": [{"type": "Ready"}]}]}},
            'supported values: "Ignore", "Count", "FailJob"',
        ),
        (
            {"restartPolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [0]}}]}},
            "spec.restartPolicy.rules[0].onExitCodes.values[0]",
        ),
        ({"replicas": 2, "stepSize": 4}, "spec.stepSize (4) must not exceed spec.replicas (2)"),
        (
            {"replicas": 8, "minReplicas": 3, "stepSize": 2},
            "spec.minReplicas (3) must be a multiple of spec.stepSize (2)",
        ),
        ({"waitForReplicasSeconds": 60}, "spec.waitForReplicasSeconds needs spec.minReplicas"),
        ({"minReplicas": 1, "waitForReplicasSeconds": 604801}, "should be less than or equal to 604800"),
        (
            {"minReplicas": 1, "waitForReplicasSeconds": 60, "startupDeadlineSeconds": 60},
            "spec.waitForReplicasSeconds (60) must be less than spec.startupDeadlineSeconds (60)",
        ),
        (
            {"minReplicas": 1, "waitForReplicasSeconds": 60, "activeDeadlineSeconds": 60},
            "spec.waitForReplicasSeconds (60) must be less than spec.activeDeadlineSeconds (60)",
        ),
        ({"spares": -1}, "spec.spares in body should be greater than or equal to 0"),
        ({"managedBy": "me"}, "spec.managedBy must be a path with a domain first, e.g. acme.io/controller"),
        ({"successPolicy": "Some"}, 'supported values: "All", "RankZero", "Any"'),
        ({"cleanPodPolicy": "Some"}, 'supported values: "Running", "All", "None"'),
        ({"workerContainer": "main"}, "spec.workerContainer is main, which is not a container of spec.template"),
        ({"template": None}, 'missing required field "template"'),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers in body should have at least 1"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers: Required value"),
        (
            {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}},
            "spec.template.spec.containers[1]: Duplicate value",
        ),
        (
            {"template": pod(restartPolicy="Always")},
            "spec.template.spec.restartPolicy must be Never or OnFailure, not Always",
        ),
        (
            {"template": pod(initContainers=[{"name": "elasticjob-inject"}])},
            "the container name elasticjob-inject is the operator's",
        ),
        (
            {"template": pod(volumes=[{"name": "elasticjob", "emptyDir": {}}])},
            "the volume names elasticjob, elasticjob-identity and elasticjob-round are the operator's",
        ),
        (
            {"template": {**pod(), "metadata": {"labels": {"elasticjob.dev/node-index": "7"}}}},
            "labels that begin with elasticjob.dev/ are set by the operator",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_field_and_limit(refusal: Refusal, spec: dict[str, Any], message: str) -> None:
    assert message in refusal(**spec)


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_pods_may_be_restarted_in_place_or_never(apply: Apply, restart: str) -> None:
    assert apply(template=pod(restartPolicy=restart))["spec"]["template"]["spec"]["restartPolicy"] == restart


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_RDZV_ENDPOINT", "ELASTICJOB_ROUND", "PET_MAX_RESTARTS"])
def test_variables_of_the_operator_are_refused_in_the_worker_container(refusal: Refusal, name: str) -> None:
    message = refusal(template=with_env("worker", "HOME", name))
    assert "the operator sets these environment variables of the worker container" in message
    assert "spec.template" in message


@pytest.mark.parametrize(
    "spec",
    [
        {"template": with_env("worker", "PET_LOG_DIR", "MASTER_ADDR", "WORLD_SIZE", "PYTHONPATH")},
        {"template": with_env("proxy", "PET_NNODES", first="worker")},
        {"template": with_env("proxy", "PET_NNODES", first="main"), "workerContainer": "main"},
        {"template": with_env("proxy", "PET_NNODES", first="main")},
    ],
)
def test_all_other_variables_and_containers_are_the_users(apply: Apply, spec: dict[str, Any]) -> None:
    assert apply(**spec)["spec"]["template"] == spec["template"]


@pytest.mark.parametrize(
    "spec",
    [
        {"template": with_env("main", "PET_NNODES", first="proxy"), "workerContainer": "main"},
        {"template": with_env("worker", "PET_NNODES", first="proxy")},
        {"template": with_env("main", "PET_NNODES")},
    ],
)
def test_the_worker_is_found_by_name_wherever_it_stands(refusal: Refusal, spec: dict[str, Any]) -> None:
    assert "the operator sets these environment variables" in refusal(**spec)


def test_fields_that_nobody_knows_yet_are_kept(apply: Apply) -> None:
    template = pod(futureField={"deep": [1, {"er": True}]}, nodeSelector={"disk": "ssd"})
    template["metadata"] = {"annotations": {"a": "b"}, "futureMeta": "x"}
    template["spec"]["containers"][0]["futureProbe"] = {"every": "1s"}
    assert apply(template=template)["spec"]["template"] == template


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"template": pod(nodeSelector={"disk": "ssd"})},
            "spec.template can only be changed while spec.suspend is true",
        ),
        ({"nprocPerNode": 2}, "spec.nprocPerNode can only be changed while spec.suspend is true"),
        ({"inject": False}, "spec.inject can only be changed while spec.suspend is true"),
        ({"workerContainer": "worker"}, "spec.workerContainer can only be changed while spec.suspend is true"),
        ({"rendezvous": {"backend": "etcd"}}, "spec.rendezvous.backend cannot be changed"),
        ({"managedBy": "acme.io/controller"}, "spec.managedBy cannot be changed"),
    ],
)
def test_what_pods_are_made_of_cannot_change_while_they_run(
    apply: Apply, refusal: Refusal, change: dict[str, Any], message: str
) -> None:
    apply()
    assert message in refusal(**change)


def test_a_suspended_job_may_get_another_template_and_be_resumed_with_it(apply: Apply) -> None:
    apply(suspend=True)
    template = pod(nodeSelector={"disk": "ssd"})
    apply(suspend=True, template=template, nprocPerNode="auto")
    assert apply(suspend=False, template=template, nprocPerNode="auto")["spec"]["template"] == template


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_rules_judge_pods_and_workers_that_are_restarted_in_them(apply: Apply, policy: str) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}
    spec = apply(restartPolicy={"rules": [rule]}, template=pod(restartPolicy=policy))["spec"]
    assert spec["restartPolicy"]["rules"] == [rule]


def test_a_wait_for_all_nodes_may_be_given_up_at_any_time(apply: Apply) -> None:
    assert apply()["spec"]["waitForReplicasSeconds"] == 0
    assert apply(replicas=2, minReplicas=1, waitForReplicasSeconds=600)["spec"]["waitForReplicasSeconds"] == 600
    assert apply(replicas=2, minReplicas=1, waitForReplicasSeconds=0)["spec"]["waitForReplicasSeconds"] == 0


def test_rules_about_ends_of_pods_are_kept_with_their_defaults(apply: Apply) -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42, 43]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
    stored = apply(restartPolicy={"rules": rules})["spec"]["restartPolicy"]["rules"]
    assert stored[0] == rules[0]
    assert stored[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_the_controller_of_a_job_stays_what_it_is(apply: Apply, refusal: Refusal) -> None:
    apply(managedBy="kueue.x-k8s.io/multikueue")
    assert "spec.managedBy cannot be changed" in refusal()
    assert "spec.managedBy cannot be changed" in refusal(managedBy="elasticjob.dev/operator")
    assert apply(managedBy="kueue.x-k8s.io/multikueue", replicas=2)["spec"]["replicas"] == 2


def test_sizes_and_times_may_change_at_any_time(apply: Apply) -> None:
    apply(replicas=2)
    spec = apply(replicas=4, minReplicas=2, maxReplicas=8, rendezvous={"joinTimeoutSeconds": 60})["spec"]
    assert (spec["replicas"], spec["minReplicas"], spec["maxReplicas"]) == (4, 2, 8)


def test_kubectl_scale_works_without_limits(api: Cluster, namespace: str, apply: Apply) -> None:
    apply(replicas=2)
    api.kubectl("-n", namespace, "scale", "ej/digits", "--replicas=5")
    assert api.kubectl.json("-n", namespace, "get", "ej", "digits")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (13, "spec.replicas (13) must not exceed spec.maxReplicas (12)"),
        (1, "spec.minReplicas (2) must not exceed spec.replicas (1)"),
        (0, "should be greater than or equal to 1"),
    ],
)
def test_kubectl_scale_is_refused_beyond_the_limits(
    api: Cluster, namespace: str, apply: Apply, replicas: int, message: str
) -> None:
    apply(replicas=10, minReplicas=2, maxReplicas=12)
    with pytest.raises(ClusterError) as refused:
        api.kubectl("-n", namespace, "scale", "ej/digits", f"--replicas={replicas}")
    assert message in str(refused.value)


def test_explain_tells_what_a_field_means(api: Cluster) -> None:
    assert "Fewest nodes that train" in api.kubectl("explain", "elasticjob.spec.minReplicas")
