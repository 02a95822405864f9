"""Builds the objects of a job: worker pods, the headless Service, the disruption budget, metadata of its state. Pure.

The user's template arrives as it was written, fields unknown to us included. Added are an identity (labels, host name,
token), the environment of the worker container, and an init container that brings the client library, last in line.
What is set only where the user set nothing: `restartPolicy`, `dnsPolicy` with host network, `hostname`, `subdomain`,
and where the worker's last words are taken from. Everything that is added meets the *restricted* pod security profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import ElasticJob, ElasticJobSpec
from elasticjob.operator.pod_environment import merged, worker_environment
from elasticjob.operator.policies.suspects import averse
from elasticjob.rendezvous.endpoint import ServerEndpoint

Body = dict[str, Any]

NON_ROOT_USER = 65532
"""Runs the init container where the pod says that everything is to run as root."""


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """What worker pods must know of the operator.

    Args:
        image: Image of the init container, the operator's own. Its user must be a number other than 0.
        endpoint: Where worker pods reach the rendezvous server.
        ca_bundle: PEM certificates to check the server against, or None for plain HTTP.
        pull_policy: imagePullPolicy of the init container; empty for the cluster's default.
        pull_secrets: Names of Secrets, in the namespace of the job, with which the image is pulled.
    """

    image: str
    endpoint: ServerEndpoint
    ca_bundle: str | None = None
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()


def pod_name(job: str, index: int, attempt: int) -> str:
    """Name of the pod of one attempt. It is never used twice."""
    return f"{job}-{index}-{attempt}"


def node_name(job: str, index: int) -> str:
    """Name of a node of the job: what stays the same when its pod is replaced. Also the host name."""
    return f"{job}-{index}"


def selector(job_uid: str) -> str:
    """Label selector of exactly the pods of one job object."""
    return f"{constants.LABEL_JOB_UID}={job_uid}"


def build_pod(
    job: ElasticJob, spec: ElasticJobSpec, facts: OperatorFacts, *, index: int, attempt: int, avoid: Sequence[str] = ()
) -> Mapping[str, Any]:
    """The worker pod of one node.

    Args:
        job: Owner of the pod.
        spec: The job's spec.
        facts: What the pod must know of the operator.
        index: Stable index of the node.
        attempt: Number of pods that the node had before.
        avoid: Names of the machines that it should rather not run on.
    """
    template = spec.template
    metadata = template.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    if facts.ca_bundle is not None:
        annotations[constants.ANNOTATION_CA_BUNDLE] = facts.ca_bundle
    pod_spec = _pod_spec(job, spec, facts, index)
    own = {constants.LABEL_NODE_INDEX: str(index), constants.LABEL_ATTEMPT: str(attempt)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": pod_name(job.name, index, attempt),
            "namespace": job.namespace,
            "labels": {**_managed(), **(metadata.get("labels") or {}), **_identity(job), **own},
            "annotations": annotations,
            "ownerReferences": [_owner(job)],
        },
        "spec": {**pod_spec, "affinity": averse(pod_spec.get("affinity"), avoid)} if avoid else pod_spec,
    }


def build_service(job: ElasticJob) -> Mapping[str, Any]:
    """The headless Service that gives worker pods their names, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {constants.LABEL_JOB_UID: job.uid},
        },
    }


def build_disruption_budget(job: ElasticJob, least: int) -> Mapping[str, Any]:
    """The PodDisruptionBudget that keeps so many nodes from being evicted. Pods that are not ready may always be."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(job, job.name),
        "spec": {
            "minAvailable": least,
            "selector": {"matchLabels": {constants.LABEL_JOB_UID: job.uid}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def state_config_map_metadata(job: ElasticJob) -> Mapping[str, Any]:
    """Metadata of the ConfigMap that the rendezvous keeps its state in: owned by the job, so it goes with it."""
    return _metadata(job, f"{job.name}-rendezvous")


def _metadata(job: ElasticJob, name: str) -> Mapping[str, Any]:
    """Metadata of an object that is owned by the job."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": _labels(job),
        "ownerReferences": [_owner(job)],
    }


def _labels(job: ElasticJob) -> dict[str, str]:
    return {**_managed(), **_identity(job)}


def _managed() -> dict[str, str]:
    return {constants.LABEL_MANAGED_BY: constants.MANAGED_BY}


def _identity(job: ElasticJob) -> dict[str, str]:
    return {constants.LABEL_JOB_NAME: job.name, constants.LABEL_JOB_UID: job.uid}


def _owner(job: ElasticJob) -> Body:
    return {
        "apiVersion": constants.API_VERSION,
        "kind": constants.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod_spec(job: ElasticJob, spec: ElasticJobSpec, facts: OperatorFacts, index: int) -> Body:
    users: Mapping[str, Any] = spec.template.get("spec") or {}
    result = {
        "restartPolicy": "Never",
        "hostname": node_name(job.name, index),
        "subdomain": job.name,
        **users,
        "containers": _containers(job, spec, facts, index, users["containers"]),
        "volumes": [*(users.get("volumes") or ()), *_volumes(spec, facts)],
    }
    if users.get("hostNetwork") and not users.get("dnsPolicy"):
        result["dnsPolicy"] = "ClusterFirstWithHostNet"
    if spec.inject:
        result["initContainers"] = [*(users.get("initContainers") or ()), _inject_container(facts, users)]
        result.update(_pull_secrets(facts, users))
    return result


def _containers(
    job: ElasticJob, spec: ElasticJobSpec, facts: OperatorFacts, index: int, users: Sequence[Body]
) -> list[Body]:
    return [
        _worker(job, spec, facts, index, container) if container.get("name") == spec.worker_container else container
        for container in users
    ]


def _worker(job: ElasticJob, spec: ElasticJobSpec, facts: OperatorFacts, index: int, users: Body) -> Body:
    ours = worker_environment(job, spec, facts.endpoint, index=index, tls=facts.ca_bundle is not None)
    mounts: list[Body] = [
        {"name": constants.IDENTITY_VOLUME, "mountPath": constants.IDENTITY_PATH, "readOnly": True},
        {"name": constants.ROUND_VOLUME, "mountPath": constants.ROUND_PATH},
    ]
    if spec.inject:
        mounts.append({"name": constants.LIBRARY_VOLUME, "mountPath": constants.LIBRARY_PATH, "readOnly": True})
    return {
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **users,
        "env": merged(ours, users.get("env") or (), inject=spec.inject),
        "volumeMounts": [*(users.get("volumeMounts") or ()), *mounts],
    }


def _volumes(spec: ElasticJobSpec, facts: OperatorFacts) -> list[Body]:
    token = {
        "serviceAccountToken": {
            "audience": constants.TOKEN_AUDIENCE,
            "expirationSeconds": constants.TOKEN_SECONDS,
            "path": "token",
        }
    }
    sources: list[Body] = [token]
    if facts.ca_bundle is not None:
        path = f"metadata.annotations['{constants.ANNOTATION_CA_BUNDLE}']"
        sources.append({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": {"fieldPath": path}}]}})
    identity = {"name": constants.IDENTITY_VOLUME, "projected": {"sources": sources}}
    round = {"name": constants.ROUND_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}
    library = {"name": constants.LIBRARY_VOLUME, "emptyDir": {"sizeLimit": "32Mi"}}
    return [identity, round, library] if spec.inject else [identity, round]


def _inject_container(facts: OperatorFacts, users: Mapping[str, Any]) -> Body:
    container: Body = {
        "name": constants.INJECT_CONTAINER,
        "image": facts.image,
        "command": ["python", "-m", "elasticjob.rendezvous.inject", constants.LIBRARY_PATH],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "500m", "memory": "128Mi"},
        },
        "securityContext": _restricted(users),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": constants.LIBRARY_VOLUME, "mountPath": constants.LIBRARY_PATH}],
    }
    if facts.pull_policy:
        container["imagePullPolicy"] = facts.pull_policy
    return container


def _restricted(users: Mapping[str, Any]) -> Body:
    """What the restricted profile asks for. A pod that runs as root must not make the init container root as well."""
    context: Body = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if (users.get("securityContext") or {}).get("runAsUser") == 0:
        context["runAsUser"] = NON_ROOT_USER
    return context


def _pull_secrets(facts: OperatorFacts, users: Mapping[str, Any]) -> Body:
    present = list(users.get("imagePullSecrets") or ())
    known = {secret.get("name") for secret in present}
    added = [{"name": name} for name in facts.pull_secrets if name not in known]
    return {"imagePullSecrets": [*present, *added]} if added else {}
