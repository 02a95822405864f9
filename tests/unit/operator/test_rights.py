import pytest

from elasticjob.operator.errors import Forbidden, Unavailable
from elasticjob.operator.ports import Body
from elasticjob.operator.rights import require_watch_rights
from tests.unit.operator.fakes import Call, ScriptedCluster


def attributes(call: Call) -> dict[str, str]:
    assert call.body is not None
    found: dict[str, str] = call.body["spec"]["resourceAttributes"]
    return found


async def test_every_kind_is_asked_for_in_every_namespace() -> None:
    cluster = ScriptedCluster(answer=lambda call: {"status": {"allowed": True}})
    await require_watch_rights(cluster, ("a", "b"))
    kinds = ("elasticjobs", "pods", "services", "poddisruptionbudgets")
    asked = [(attributes(call)["namespace"], attributes(call)["resource"]) for call in cluster.calls]
    assert asked == [(space, kind) for space in "ab" for kind in kinds]


async def test_what_is_missing_is_named() -> None:
    def answer(call: Call) -> Body:
        return {"status": {"allowed": attributes(call)["resource"] != "pods"}}

    with pytest.raises(Forbidden, match="may not watch pods in namespace team"):
        await require_watch_rights(ScriptedCluster(answer=answer), ("team",))
    with pytest.raises(Forbidden, match="may not watch pods in the whole cluster"):
        await require_watch_rights(ScriptedCluster(answer=answer), (None,))


async def test_where_nobody_may_ask_the_watch_itself_has_to_tell() -> None:
    def answer(call: Call) -> Body:
        raise Forbidden("selfsubjectaccessreviews is forbidden", status=403)

    await require_watch_rights(ScriptedCluster(answer=answer), (None,))


async def test_a_server_that_does_not_answer_is_no_permission() -> None:
    def answer(call: Call) -> Body:
        raise Unavailable("gone")

    with pytest.raises(Unavailable):
        await require_watch_rights(ScriptedCluster(answer=answer), (None,))
