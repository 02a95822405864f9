import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from elasticjob.operator.errors import Forbidden, NotFound, NotLeader
from elasticjob.operator.leadership import label
from elasticjob.operator.leadership.label import LeaderLabel
from elasticjob.operator.ports import Body
from tests.unit.operator.fakes import Call, ScriptedCluster


def values(cluster: ScriptedCluster) -> list[str | None]:
    """The label's values as they were written."""
    return [call.body["metadata"]["labels"]["elasticjob.dev/leader"] for call in cluster.calls if call.body]


@contextlib.asynccontextmanager
async def running(cluster: ScriptedCluster, fenced: ScriptedCluster | None = None) -> AsyncIterator[LeaderLabel]:
    label = LeaderLabel(cluster=cluster, fenced=fenced or ScriptedCluster(), namespace="ns", pod="operator-1")
    task = asyncio.create_task(label.run())
    await turns()
    yield label
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_label_left_by_an_earlier_run_is_taken_away() -> None:
    cluster = ScriptedCluster()
    async with running(cluster):
        pass
    assert values(cluster) == [None]
    assert cluster.calls[0].name == "operator-1"


async def test_the_label_follows_leadership() -> None:
    cluster = ScriptedCluster()
    async with running(cluster) as label:
        label.show(leads=True)
        await turns()
        label.show(leads=False)
        await turns()
    assert values(cluster) == [None, "true", None]


async def test_a_refusal_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(label, "RETRY_SECONDS", 0)

    def answer(call: Call) -> Body:
        if len(cluster.calls) < 4:
            raise Forbidden("pods is forbidden", status=403)
        return {}

    cluster = ScriptedCluster(answer=answer)
    async with running(cluster):
        await turns()
    assert len(cluster.calls) == 4
    assert len(caplog.records) == 1


async def test_outside_of_kubernetes_there_is_nothing_to_label() -> None:
    def answer(call: Call) -> Body:
        raise NotFound("no such pod", status=404)

    cluster = ScriptedCluster(answer=answer)
    async with running(cluster):
        pass
    assert len(cluster.calls) == 1


async def test_the_label_of_a_silent_predecessor_is_taken_away() -> None:
    cluster, fenced = ScriptedCluster(), ScriptedCluster()
    async with running(cluster, fenced) as label:
        label.show(leads=True, instead_of="operator-2")
        await turns()
        label.show(leads=False, instead_of="operator-2")
        await turns()
    assert values(cluster) == [None, "true", None]
    assert [call.name for call in fenced.calls] == ["operator-2"]
    assert values(fenced) == [None]


async def test_the_own_pod_is_no_silent_predecessor() -> None:
    cluster, fenced = ScriptedCluster(), ScriptedCluster()
    async with running(cluster, fenced) as label:
        label.show(leads=True, instead_of="operator-1")
        await turns()
    assert values(cluster) == [None, "true"]
    assert not fenced.calls


async def test_without_leadership_no_label_of_another_is_touched() -> None:
    def answer(call: Call) -> Body:
        raise NotLeader("this process does not hold the lease")

    cluster, fenced = ScriptedCluster(), ScriptedCluster(answer=answer)
    async with running(cluster, fenced) as label:
        label.show(leads=True, instead_of="operator-2")
        await turns()
        label.show(leads=False)
        await turns()
    assert values(cluster) == [None, "true", None]
    assert len(fenced.calls) == 1
