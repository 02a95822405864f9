"""The PodDisruptionBudget of a job over its life."""

from elasticjob.operator.plan import ApiProblem, CreateDisruptionBudget, CreatePod, UpdateDisruptionBudget
from tests.unit.operator.world import UID, World, running


def least(world: World) -> int | None:
    found = world.disruption_budget
    return None if found is None else found["spec"]["minAvailable"]


def test_a_job_that_can_shrink_protects_its_minimum_by_its_own_pods_alone() -> None:
    world = running(3, minReplicas=2)
    found = world.disruption_budget
    assert found is not None
    assert found["metadata"]["name"] == "digits"
    assert found["metadata"]["ownerReferences"][0]["uid"] == UID
    assert found["spec"] == {
        "minAvailable": 2,
        "selector": {"matchLabels": {"elasticjob.dev/job-uid": UID}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def test_a_job_that_needs_all_of_its_nodes_blocks_no_drain() -> None:
    assert least(running(3)) is None
    assert least(running(3, minReplicas=3)) is None


def test_the_minimum_follows_the_spec() -> None:
    world = running(4, minReplicas=2)
    world.spec(minReplicas=3)
    world.settle()
    assert least(world) == 3
    world.spec(replicas=3)
    world.settle()
    assert least(world) is None


def test_what_somebody_changed_is_put_right_and_what_the_server_added_is_left() -> None:
    world = running(3, minReplicas=2)
    assert world.disruption_budget is not None
    world.disruption_budget["spec"]["addedByServer"] = True
    assert world.plan().actions == ()
    del world.disruption_budget["spec"]["minAvailable"]
    world.disruption_budget["spec"]["maxUnavailable"] = 0
    world.settle()
    assert least(world) == 2
    assert "maxUnavailable" not in world.disruption_budget["spec"]


def test_what_somebody_deleted_comes_back() -> None:
    world = running(3, minReplicas=2)
    world.disruption_budget = None
    world.settle()
    assert least(world) == 2


def test_a_suspended_job_protects_nothing() -> None:
    world = running(3, minReplicas=2)
    world.spec(suspend=True)
    world.settle()
    assert least(world) is None


def test_a_job_that_is_over_protects_nothing() -> None:
    world = running(3, minReplicas=2, restartPolicy={"maxRestarts": 0})
    world.exit(1, 1)
    world.settle()
    assert world.status["phase"] == "Failed"
    assert least(world) is None


def test_a_job_that_is_being_deleted_leaves_it_to_its_owner_reference() -> None:
    world = running(3, minReplicas=2)
    world.body["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert world.plan().actions == ()


def test_a_budget_that_is_refused_is_tried_again_later_and_holds_up_no_pod() -> None:
    world = World(replicas=3, minReplicas=2)
    actions = world.plan().actions
    kinds = [type(action) for action in actions]
    assert kinds.index(CreatePod) < kinds.index(CreateDisruptionBudget)
    words = 'poddisruptionbudgets "digits" already exists and is not controlled by this job'
    target = "PodDisruptionBudget/digits"
    world.problems = (ApiProblem(target=target, status=409, reason="AlreadyExists", message=words, at=world.clock),)
    world.settle()
    assert least(world) is None
    assert words in world.condition("Ready")["message"]
    world.later(60)
    world.settle()
    assert least(world) == 2


def test_an_update_is_of_the_version_that_was_read() -> None:
    world = running(4, minReplicas=2)
    assert world.disruption_budget is not None
    world.disruption_budget["metadata"]["resourceVersion"] = "77"
    world.spec(minReplicas=3)
    (update,) = [one for one in world.plan().actions if isinstance(one, UpdateDisruptionBudget)]
    assert update.body["metadata"]["resourceVersion"] == "77"
