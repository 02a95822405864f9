"""The rendezvous listens to the pods of a job and to nobody else."""

import contextlib
import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space, round_of
from tests.e2e.suite import Suite

AUDIENCE = "elasticjob.dev/rendezvous"


def join(url: str, run_id: str, token: str | None) -> tuple[int, dict[str, Any]]:
    """Ask to join a run, as an agent does; certificates are not what is tested here."""
    address = urlsplit(url)
    assert address.hostname is not None
    if address.scheme == "https":
        context = ssl._create_unverified_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=10, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    headers = {"Elasticjob-Protocol": "1", "Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = {"incarnation": "0" * 32, "address": "10.0.0.1", "pid": 1, "round": 0, "failure": None, "wait": 0}
    with contextlib.closing(connection):
        connection.request("POST", f"/v1/runs/{run_id}/join", body=json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def pod_token(space: Space, pod: str, *, audience: str) -> str:
    uid = space.get("pod", pod)["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--bound-object-uid={uid}")
    return space.kubectl("create", "token", "default", f"--audience={audience}", *bound).strip()


@pytest.mark.timeout(120)
def test_strangers_are_turned_away_and_the_job_is_not_disturbed(suite: Suite, space: Space) -> None:
    for name in ("mine", "other"):
        space.apply(job(name, image=suite.image, command=launched(FOREVER), replicas=1, maximum=1))
    before = space.wait_training("mine", nodes=1, seconds=40)
    space.wait_training("other", nodes=1, seconds=40)
    mine = space.get("elasticjob", "mine")["metadata"]["uid"]
    other_pod = next(iter(space.pod_uids("other")))
    my_pod = next(iter(space.pod_uids("mine")))
    url = suite.rendezvous_url()

    assert join(url, mine, None)[0] == 401
    assert join(url, mine, "not.a.token")[0] == 401
    api_token = pod_token(space, my_pod, audience="https://kubernetes.default.svc")
    assert join(url, mine, api_token)[0] == 401
    unbound = space.kubectl("create", "token", "default", f"--audience={AUDIENCE}").strip()
    assert join(url, mine, unbound)[0] in (401, 403)
    foreign = pod_token(space, other_pod, audience=AUDIENCE)
    status, answer = join(url, mine, foreign)
    assert (status, answer["error"]["code"]) == (403, "forbidden")

    after = space.status("mine")
    assert round_of(after) == round_of(before)
    assert after["phase"] == "Running"
