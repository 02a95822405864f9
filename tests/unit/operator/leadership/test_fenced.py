from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from elasticjob.operator.errors import NotLeader
from elasticjob.operator.leadership.elector import Leadership, Term
from elasticjob.operator.leadership.fenced import FencedCluster
from elasticjob.operator.resources import PODS
from tests.unit.operator.fakes import FakeClock, ScriptedCluster

BODY = {"metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"}}
WRITES: list[Callable[[FencedCluster], Awaitable[Any]]] = [
    lambda port: port.create(PODS, BODY, namespace="n"),
    lambda port: port.replace(PODS, BODY),
    lambda port: port.patch(PODS, {}, namespace="n", name="a"),
    lambda port: port.delete(PODS, namespace="n", name="a", uid="u"),
]


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_is_made_without_leadership(write: Callable[[FencedCluster], Awaitable[Any]]) -> None:
    cluster = ScriptedCluster()
    port = FencedCluster(cluster, leadership=Leadership(FakeClock()), timeout=10)
    with pytest.raises(NotLeader):
        await write(port)
    assert cluster.calls == []


@pytest.mark.parametrize("write", WRITES)
async def test_a_leader_writes(write: Callable[[FencedCluster], Awaitable[Any]]) -> None:
    cluster, clock = ScriptedCluster(), FakeClock()
    leadership = Leadership(clock)
    leadership.extend(Term(epoch=1, ends=clock.now() + 5))
    await write(FencedCluster(cluster, leadership=leadership, timeout=10))
    assert len(cluster.calls) == 1


async def test_reading_needs_no_leadership() -> None:
    cluster = ScriptedCluster(answer=lambda call: {"items": [], "resourceVersion": "1"})
    port = FencedCluster(cluster, leadership=Leadership(FakeClock()), timeout=10)
    await port.get(PODS, namespace="n", name="a")
    await port.list(PODS, namespace="n")
    await port.get_raw("/openid/v1/jwks")
    assert len(cluster.calls) == 3
