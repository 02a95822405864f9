"""States in etcd of jobs that rest while the operator changes, or are deleted meanwhile: they go all the same."""

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from elasticjob.operator.hosting.state_owner import StateOwner, with_owner
from elasticjob.rendezvous.backend import RendezvousBackend
from elasticjob.rendezvous.backends import create_backend
from elasticjob.rendezvous.encoding import encode
from elasticjob.rendezvous.parameters import RendezvousParameters
from elasticjob.rendezvous.state import State
from tests.cluster.etcd_server import EtcdServer
from tests.integration.operator.operators import LEASE
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


def state_of(site: Site, backend: str, conf: Mapping[str, str]) -> RendezvousBackend:
    return state_at(uid_of(site, "elasticjob", "digits"), backend, conf)


def state_at(run_id: str, backend: str, conf: Mapping[str, str]) -> RendezvousBackend:
    params = RendezvousParameters(backend, conf["endpoint"], run_id, 1, 1, prefix=conf["prefix"])
    return create_backend(backend, params)[0]


def uid_of(site: Site, kind: str, name: str) -> str:
    return site.kubectl("get", kind, name, "-o", "jsonpath={.metadata.uid}")


def put_state(site: Site, conf: Mapping[str, str], run_id: str, *, job: str, installation: str) -> RendezvousBackend:
    """A state as an operator would have stored it."""
    owner = StateOwner(installation=installation, namespace=site.namespace, job=job)
    state = state_at(run_id, "etcd", conf)
    assert state.set_state(with_owner(encode(State(round=1)), owner)) is not None
    return state


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


def test_states_of_jobs_that_were_deleted_while_no_operator_ran_go_and_no_others(
    site: Site, operators: Operators, etcd_v3: EtcdServer
) -> None:
    conf = {"endpoint": etcd_v3.endpoint, "prefix": f"/{site.namespace}"}
    meeting = {"backend": "etcd", "conf": conf}

    def train() -> RendezvousBackend:
        site.create(replicas=1, rendezvous=meeting)
        site.run(POD)
        site.join(POD)
        site.wait(round=1, state="Formed")
        return state_of(site, "etcd", conf)

    deleted = train()
    operators.kill()
    site.remove()
    site.create(name="letters", suspend=True, rendezvous=meeting)
    lease, letters = uid_of(site, "lease", LEASE), uid_of(site, "elasticjob", "letters")
    resting = put_state(site, conf, letters, job="letters", installation=lease)
    first = str(uuid.UUID(int=0))  # the one that is looked at before all others
    foreign = put_state(site, conf, first, job="digits", installation=str(uuid.uuid4()))
    assert deleted.get_state() is not None
    operators.start()
    served = train()
    eventually(lambda: deleted.get_state() is None, what="the state of the deleted job is gone")
    assert None not in (served.get_state(), resting.get_state(), foreign.get_state())
    site.kubectl("delete", "elasticjob", "letters")
