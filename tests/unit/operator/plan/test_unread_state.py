"""The rendezvous cannot read the state of a run: that is told, and nothing that was known is taken back."""

from elasticjob.rendezvous.orders import RunState, RunView
from tests.unit.operator.world import UID, World, running

TROUBLE = "RendezvousConnectionError: etcd at http://10.0.0.9:2379 cannot be used: connection refused"


def unread(**changes: object) -> RunView:
    fields = {"details": {"storeError": TROUBLE}, **changes}
    return RunView(run_id=UID, epoch=9, round=0, state=RunState.WAITING, taken_over=False, **fields)  # type: ignore[arg-type]


def test_the_conditions_of_a_new_job_name_endpoint_and_cause() -> None:
    world = World()
    world.view = unread()
    world.settle()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NotServed")
    assert TROUBLE in ready["message"]
    assert TROUBLE in world.condition("RendezvousReady")["message"]
    assert world.status["phase"] == "Pending"


def test_a_job_that_trains_keeps_its_round_members_and_phase() -> None:
    world = running(2)
    before = world.status
    world.view = unread()
    world.settle()
    assert world.status["rendezvous"] == before["rendezvous"]
    assert world.status["phase"] == "Running"
    assert [node["rank"] for node in world.status["nodes"]] == [0, 1]
    ready = world.condition("Ready")
    assert ready["status"] == "True"
    assert TROUBLE in ready["message"]
    assert world.names() == ["digits-0-0", "digits-1-0"]


def test_a_state_that_cannot_be_used_at_all_ends_the_job() -> None:
    world = running(2)
    world.view = unread(failed="the state is corrupt", details={})
    world.settle()
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("RendezvousFailed", "the state is corrupt")
    assert world.status["rendezvous"]["round"] == 1
