from typing import Any

from elasticjob.operator.cache import Cache, JobKey
from elasticjob.operator.constants import LABEL_JOB_NAME, LABEL_JOB_UID
from elasticjob.operator.resources import JOBS, PODS

KEY = JobKey("team", "digits")


def job(version: int, uid: str = "job-1", **more: Any) -> dict[str, Any]:
    meta = {"namespace": "team", "name": "digits", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {}} | more


def pod(version: int, uid: str = "pod-1", job_uid: str = "job-1", namespace: str = "team") -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"digits-{uid}",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {LABEL_JOB_NAME: "digits", LABEL_JOB_UID: job_uid},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "big"}],
            "containers": [{"name": "worker", "image": "i", "env": [{"name": "A", "value": "b"}]}],
        },
        "status": {"phase": "Running"},
    }


def test_an_event_tells_which_job_it_concerns() -> None:
    cache = Cache()
    assert cache.see(JOBS, job(1)).key == KEY
    assert cache.see(PODS, pod(2)).key == KEY
    assert list(cache.children(PODS, "job-1")) == ["pod-1"]
    assert list(cache.jobs()) == [KEY]


def test_a_pod_is_kept_without_what_no_decision_needs() -> None:
    cache = Cache()
    cache.see(PODS, pod(1))
    kept = cache.children(PODS, "job-1")["pod-1"]
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"nodeName": "n1", "containers": [{"name": "worker"}], "initContainers": []}
    assert kept["status"] == {"phase": "Running"}


def test_an_older_version_never_replaces_a_newer_one() -> None:
    cache = Cache()
    cache.see(JOBS, job(10, note="new"))
    assert not cache.see(JOBS, job(9, note="old")).changed
    assert not cache.see(JOBS, job(10, note="same")).changed
    known = cache.job(KEY)
    assert known is not None
    assert known["note"] == "new"


def test_what_was_deleted_does_not_return_with_a_late_answer() -> None:
    cache = Cache()
    assert cache.see(PODS, pod(5), deleted=True).changed is False
    assert not cache.see(PODS, pod(4)).changed
    assert cache.count(PODS) == 0


def test_a_deletion_says_that_something_changed_once() -> None:
    cache = Cache()
    cache.see(PODS, pod(1))
    assert cache.see(PODS, pod(2), deleted=True).changed
    assert not cache.see(PODS, pod(2), deleted=True).changed
    assert cache.children(PODS, "job-1") == {}


def test_the_deletion_of_a_former_job_leaves_its_successor() -> None:
    cache = Cache()
    cache.see(JOBS, job(5, uid="new"))
    cache.see(JOBS, job(6, uid="old"), deleted=True)
    known = cache.job(KEY)
    assert known is not None
    assert known["metadata"]["uid"] == "new"


def test_a_successor_replaces_a_former_job_of_its_name() -> None:
    cache = Cache()
    cache.see(JOBS, job(5, uid="old"))
    assert cache.see(JOBS, job(6, uid="new")).created
    assert cache.count(JOBS) == 1


def test_pods_of_a_former_job_are_not_those_of_its_successor() -> None:
    cache = Cache()
    cache.see(PODS, pod(1, uid="a", job_uid="old"))
    cache.see(PODS, pod(2, uid="b", job_uid="new"))
    assert list(cache.children(PODS, "new")) == ["b"]


def test_a_full_list_removes_what_vanished_unseen() -> None:
    cache = Cache()
    cache.see(PODS, pod(1, uid="a"))
    cache.see(PODS, pod(2, uid="b"))
    touched = cache.replace(PODS, [pod(2, uid="b")], resource_version="9", namespace=None)
    assert touched == {KEY}
    assert list(cache.children(PODS, "job-1")) == ["b"]


def test_a_full_list_keeps_what_is_newer_than_itself() -> None:
    cache = Cache()
    cache.see(PODS, pod(20, uid="just-created"))
    assert cache.replace(PODS, [], resource_version="15", namespace=None) == set()
    assert cache.count(PODS) == 1


def test_a_list_of_one_namespace_removes_nothing_elsewhere() -> None:
    cache = Cache()
    cache.see(PODS, pod(1, uid="a"))
    cache.see(PODS, pod(2, uid="b", namespace="other"))
    cache.replace(PODS, [], resource_version="9", namespace="other")
    assert cache.count(PODS) == 1


def test_a_full_list_of_jobs_removes_a_job_and_tells_its_key() -> None:
    cache = Cache()
    cache.see(JOBS, job(1))
    assert cache.replace(JOBS, [], resource_version="5", namespace=None) == {KEY}
    assert cache.job(KEY) is None


def test_a_list_that_tells_nothing_new_touches_no_job() -> None:
    cache = Cache()
    cache.see(PODS, pod(3))
    assert cache.replace(PODS, [pod(3)], resource_version="9", namespace=None) == set()


def test_an_object_without_our_labels_concerns_no_job() -> None:
    cache = Cache()
    stranger = pod(1)
    del stranger["metadata"]["labels"]
    assert cache.see(PODS, stranger).key is None


def test_a_pod_whose_label_was_changed_moves() -> None:
    cache = Cache()
    cache.see(PODS, pod(1, job_uid="job-1"))
    cache.see(PODS, pod(2, job_uid="job-2"))
    assert cache.children(PODS, "job-1") == {}
    assert list(cache.children(PODS, "job-2")) == ["pod-1"]
    assert cache.count(PODS) == 1
