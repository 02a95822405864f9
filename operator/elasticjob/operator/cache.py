"""What was seen of the cluster: jobs by key, and their children by the UID of the job.

The cache is fed from three sides: watch events, full lists and the answers to own writes. They may arrive in any
order, so two rules keep it from going back in time: an object is only replaced by a newer version of itself, and an
object that was seen deleted never returns (a UID is never used twice). A full list removes what it does not contain,
unless that is newer than the list. Each event costs O(1), whatever the number of objects.

Pods are cut down to what decisions need: a thousand whole pods would be tens of MiB.

Belongs to one event loop; nothing here waits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from elasticjob.operator.constants import LABEL_JOB_NAME, LABEL_JOB_UID
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import JOBS, PODS

_TOMBSTONES = 10_000
"""Deleted UIDs to remember; far more than can be under way at a time."""

_POD_SPEC_KEPT = ("nodeName", "restartPolicy", "hostNetwork", "schedulingGates")


class JobKey(NamedTuple):
    """Names a job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an object meant to the cache.

    Args:
        key: The job that it is or belongs to; None for an object that names none.
        created: It was not known before.
        changed: It was not known before, or this is a newer version, or it went away.
    """

    key: JobKey | None
    created: bool = False
    changed: bool = False


class Cache:
    """The operator's view of the cluster."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Body] = {}
        self._children: dict[Resource, dict[str, dict[str, Body]]] = {}
        self._owners: dict[Resource, dict[str, str]] = {}
        self._buried: dict[str, None] = {}

    def job(self, key: JobKey) -> Body | None:
        """The job of that name, as last seen."""
        return self._jobs.get(key)

    def jobs(self) -> Iterable[JobKey]:
        """The names of all jobs."""
        return tuple(self._jobs)

    def children(self, resource: Resource, job_uid: str) -> Mapping[str, Body]:
        """The children of one kind that carry the job's UID in their label, by their own UID."""
        return dict(self._children.get(resource, {}).get(job_uid, {}))

    def count(self, resource: Resource) -> int:
        """How many objects of that kind are known."""
        return len(self._jobs) if resource == JOBS else len(self._owners.get(resource, {}))

    def see(self, resource: Resource, body: Body, *, deleted: bool = False) -> Seen:
        """Take over one object from a watch event or the answer to a write."""
        uid = body["metadata"]["uid"]
        key = key_of(resource, body)
        if deleted:
            return Seen(key=key, changed=self._remove(resource, uid, key))
        if uid in self._buried:
            return Seen(key=key)
        known = self._find(resource, uid, key)
        if known is not None and not _is_newer(body, known):
            return Seen(key=key)
        self._put(resource, uid, key, slim(resource, body))
        return Seen(key=key, created=known is None, changed=True)

    def replace(
        self, resource: Resource, bodies: Iterable[Body], *, resource_version: str, namespace: str | None
    ) -> set[JobKey]:
        """Take over a full list of one namespace (None: of all).

        Returns:
            The jobs concerned by any difference to what was known.
        """
        touched: set[JobKey] = set()
        listed: set[str] = set()
        for body in bodies:
            listed.add(body["metadata"]["uid"])
            seen = self.see(resource, body)
            if seen.changed and seen.key:
                touched.add(seen.key)
        for uid, known in list(self._all(resource)):
            meta = known["metadata"]
            outside = namespace is not None and meta["namespace"] != namespace
            if uid in listed or outside or _version(meta["resourceVersion"]) > _version(resource_version):
                continue
            key = key_of(resource, known)
            self._remove(resource, uid, key)
            touched |= {key} if key else set()
        return touched

    def knows(self, resource: Resource, body: Body) -> bool:
        """Whether this very object is in the cache already."""
        return self._find(resource, body["metadata"]["uid"], key_of(resource, body)) is not None

    def _find(self, resource: Resource, uid: str, key: JobKey | None) -> Body | None:
        if resource == JOBS:
            job = self._jobs.get(key) if key else None
            return job if job and job["metadata"]["uid"] == uid else None
        owner = self._owners.get(resource, {}).get(uid)
        return None if owner is None else self._children[resource][owner][uid]

    def _put(self, resource: Resource, uid: str, key: JobKey | None, body: Body) -> None:
        if resource == JOBS:
            if key:
                self._jobs[key] = body
            return
        owner = (body["metadata"].get("labels") or {}).get(LABEL_JOB_UID, "")
        before = self._owners.setdefault(resource, {}).get(uid)
        if before is not None and before != owner:
            self._drop_child(resource, uid, before)
        self._owners[resource][uid] = owner
        self._children.setdefault(resource, {}).setdefault(owner, {})[uid] = body

    def _remove(self, resource: Resource, uid: str, key: JobKey | None) -> bool:
        self._buried[uid] = None
        if len(self._buried) > _TOMBSTONES:
            del self._buried[next(iter(self._buried))]
        if self._find(resource, uid, key) is None:
            return False
        if resource == JOBS and key:
            del self._jobs[key]
        else:
            self._drop_child(resource, uid, self._owners[resource].pop(uid))
        return True

    def _drop_child(self, resource: Resource, uid: str, owner: str) -> None:
        siblings = self._children[resource][owner]
        del siblings[uid]
        if not siblings:
            del self._children[resource][owner]

    def _all(self, resource: Resource) -> Iterable[tuple[str, Body]]:
        if resource == JOBS:
            return [(job["metadata"]["uid"], job) for job in self._jobs.values()]
        return [pair for family in self._children.get(resource, {}).values() for pair in family.items()]


def key_of(resource: Resource, body: Body) -> JobKey | None:
    """The job that an object is, or belongs to by its label."""
    meta = body["metadata"]
    if resource == JOBS:
        return JobKey(meta["namespace"], meta["name"])
    name = (meta.get("labels") or {}).get(LABEL_JOB_NAME)
    return JobKey(meta["namespace"], name) if name else None


def slim(resource: Resource, body: Body) -> Body:
    """The object without what no decision needs."""
    meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if resource != PODS:
        return {**body, "metadata": meta}
    spec = body.get("spec") or {}
    kept: dict[str, Any] = {name: spec[name] for name in _POD_SPEC_KEPT if name in spec}
    for group in ("containers", "initContainers"):
        kept[group] = [
            {name: one[name] for name in ("name", "restartPolicy") if name in one} for one in spec.get(group) or []
        ]
    return {"metadata": meta, "spec": kept, "status": body.get("status") or {}}


def _is_newer(body: Body, known: Body) -> bool:
    return _version(body["metadata"]["resourceVersion"]) > _version(known["metadata"]["resourceVersion"])


def _version(resource_version: str) -> int:
    # Since Kubernetes 1.35 versions of one kind are defined to be comparable as numbers; etcd's always were.
    return int(resource_version)
