"""Finds out whether this operator may watch what it needs, before it says that it does.

A refused watch is retried by the framework for a while, during which the process would look ready and see nothing.
Everybody may ask the API server about the own rights (cluster role `system:basic-user`); where that was taken away, the
refused watch itself has to tell.
"""

from elasticjob.operator.errors import Forbidden
from elasticjob.operator.ports import ClusterPort, Resource
from elasticjob.operator.resources import ACCESS_REVIEWS, WATCHED


async def require_watch_rights(cluster: ClusterPort, scopes: tuple[str | None, ...]) -> None:
    """Check that everything may be watched in all scopes (namespaces; None for the cluster).

    Raises:
        Forbidden: Something may not. The message names the resource and the namespace.
        ClusterError: The API server cannot be asked.
    """
    for namespace in scopes:
        for resource in WATCHED:
            if not await _may_watch(cluster, resource, namespace):
                where = f"in namespace {namespace}" if namespace else "in the whole cluster"
                raise Forbidden(f"the operator may not watch {resource.plural} {where}", status=403)


async def _may_watch(cluster: ClusterPort, resource: Resource, namespace: str | None) -> bool:
    attributes = {"verb": "watch", "group": resource.group, "resource": resource.plural, "namespace": namespace or ""}
    review = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await cluster.create(ACCESS_REVIEWS, review, namespace=None)
    except Forbidden:
        return True
    return bool(answer["status"].get("allowed"))
