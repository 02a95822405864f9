"""States in etcd of jobs that rest while the operator changes: they go with their jobs all the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.parameters import RendezvousParameters
from tests.integration.reading.processes import Operators
from tests.integration.reading.site import Site, eventually

pytestmark = pytest.mark.timeout(600, func_only=True)

POD = "digits-0-0"


def is_suspended(site: Site) -> None:
    site.change(suspend=True)
    site.finish_deletion(POD)
    eventually(lambda: site.status()["phase"] == "Suspended", what="the job is suspended")
    eventually(lambda: not site.kubectl("get", "pods", "-o", "name").strip(), what="no pod is left")


def is_over(site: Site) -> None:
    site.exit(POD, 0, "Completed")
    eventually(lambda: site.status()["phase"] == "Succeeded", what="the job has succeeded")


def state_of(site: Site, backend: str, conf: dict[str, str]) -> RendezvousBackend:
    uid = site.kubectl("get", "elasticjob", "digits", "-o", "jsonpath={.metadata.uid}")
    return create_backend(backend, RendezvousParameters(backend, conf["endpoint"], uid, 1, 1, prefix=conf["prefix"]))[0]


def is_looked_at(site: Site) -> bool:
    job: dict[str, Any] = json.loads(site.kubectl("get", "elasticjob", "digits", "-o", "json"))
    return bool(job["status"]["observedGeneration"] == job["metadata"]["generation"])


@pytest.mark.parametrize(("backend", "rests"), [("etcd", is_suspended), ("etcd-v2", is_over)])
def test_the_state_of_a_job_that_a_later_operator_never_ran_goes_with_it(
    request: pytest.FixtureRequest,
    site: Site,
    operators: Operators,
    backend: str,
    rests: Callable[[Site], None],
) -> None:
    server = request.getfixturevalue("etcd_v3" if backend == "etcd" else "etcd_v2")
    conf = {"endpoint": server.endpoint, "prefix": f"/{site.namespace}"}
    site.create(replicas=1, rendezvous={"backend": backend, "conf": conf, "closeTimeoutSeconds": 0})
    site.run(POD)
    site.join(POD)
    site.wait(round=1, state="Formed")
    rests(site)
    state = state_of(site, backend, conf)
    assert state.get_state() is not None
    operators.kill()
    operators.start()
    site.change(ttlSecondsAfterFinished=3600)
    eventually(lambda: is_looked_at(site), what="the later operator has looked at the job")
    site.kubectl("delete", "elasticjob", "digits")
    eventually(lambda: state.get_state() is None, what="the state is gone")
