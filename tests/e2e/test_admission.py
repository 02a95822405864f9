"""Manifests that cannot work are refused with a message that names the field."""

from typing import Any

import pytest

from tests.cluster.errors import ClusterError
from tests.e2e.jobs import job
from tests.e2e.space import Space

Job = dict[str, Any]


def good() -> Job:
    return job("refused", image="i", command=["true"])


def with_spec(**fields: Any) -> Job:
    manifest = good()
    manifest["spec"] |= fields
    return manifest


def with_name(name: str) -> Job:
    manifest = good()
    manifest["metadata"]["name"] = name
    return manifest


def with_environment(name: str) -> Job:
    manifest = good()
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": name, "value": "x"}]
    return manifest


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        pytest.param(with_name("n" * 49), "48", id="long-name"),
        pytest.param(with_name("a.b"), "name", id="dotted-name"),
        pytest.param(with_name("1job"), "name", id="leading-digit"),
        pytest.param(with_spec(minReplicas=3), "minReplicas", id="minimum-above-replicas"),
        pytest.param(with_spec(maxReplicas=1), "maxReplicas", id="maximum-below-replicas"),
        pytest.param(with_spec(replicas=0), "replicas", id="no-replicas"),
        pytest.param(with_spec(nprocPerNode="many"), "nprocPerNode", id="nproc"),
        pytest.param(with_spec(rendezvous={"backend": "zookeeper"}), "backend", id="backend"),
        pytest.param(with_spec(successPolicy="Sometimes"), "successPolicy", id="success-policy"),
        pytest.param(with_spec(replcias=2), "replcias", id="misspelt-field"),
        pytest.param(with_environment("PET_NNODES"), "PET_NNODES", id="reserved-variable"),
        pytest.param(with_environment("ELASTICJOB_ROUND"), "ELASTICJOB_", id="own-prefix"),
    ],
)
def test_a_manifest_that_cannot_work_is_refused(space: Space, manifest: Job, complaint: str) -> None:
    with pytest.raises(ClusterError) as refused:
        space.apply(manifest)

    assert complaint in str(refused.value)


def test_a_good_manifest_is_admitted(space: Space) -> None:
    space.apply(good())
