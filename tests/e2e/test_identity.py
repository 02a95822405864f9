"""The rendezvous listens to the pods of a job and to nobody else."""

import pytest

from tests.e2e.callers import AUDIENCE, join, pod_token
from tests.e2e.jobs import FOREVER, job, launched
from tests.e2e.space import Space, round_of
from tests.e2e.suite import Suite


@pytest.mark.timeout(400, func_only=True)
def test_strangers_are_turned_away_and_the_job_is_not_disturbed(suite: Suite, space: Space) -> None:
    for name in ("mine", "other"):
        space.apply(job(name, image=suite.image, command=launched(FOREVER), replicas=1, maximum=1))
    before = space.wait_training("mine", nodes=1, seconds=120)
    space.wait_training("other", nodes=1, seconds=120)
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
