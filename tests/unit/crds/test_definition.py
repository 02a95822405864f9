"""The CustomResourceDefinition says the same as the code, and says it to users."""

import jsonschema
import pytest

from elasticjob.operator import constants
from elasticjob.operator.model import ElasticJobSpec, RendezvousSpec
from elasticjob.operator.model.rules import HIGHEST_EXIT_CODE, MAX_RULES, OPERATORS, RuleAction
from elasticjob.operator.model.spec import BACKENDS, CLEAN_POD_POLICIES, SUCCESS_POLICIES
from elasticjob.operator.pod_environment import RESERVED
from elasticjob.operator.status.nodes import SHOWN
from tests.unit.crds import schema
from tests.unit.operator.world import World, running

_NO_DESCRIPTION_ALLOWED = "metadata"
"""The API server refuses anything but a type for it."""


def test_every_property_has_a_description() -> None:
    silent = [
        path
        for path, one in schema.walk(schema.root())
        if path != _NO_DESCRIPTION_ALLOWED and len(one.get("description", "").strip()) < 8
    ]
    assert silent == []


def test_every_print_column_has_a_description() -> None:
    assert all(column.get("description") for column in schema.version()["additionalPrinterColumns"])


def test_every_rule_has_a_message() -> None:
    assert [path for path, rule in schema.rules() if not rule.get("message")] == []


def test_names_are_those_of_the_code() -> None:
    spec = schema.definition()["spec"]
    assert schema.definition()["metadata"]["name"] == f"{constants.PLURAL}.{constants.GROUP}"
    assert spec["names"]["kind"] == constants.KIND
    assert schema.version()["name"] == constants.VERSION
    assert spec["names"]["shortNames"] == ["ej"]
    assert spec["names"]["categories"] == ["all"]


def test_conditions_and_nodes_are_maps_so_that_two_writers_never_make_duplicates() -> None:
    assert schema.at("status.conditions")["x-kubernetes-list-map-keys"] == ["type"]
    assert schema.at("status.nodes")["x-kubernetes-list-map-keys"] == ["name"]
    assert schema.at("status.nodes")["maxItems"] == SHOWN


@pytest.mark.parametrize("field", ["replicas", "minReplicas", "maxReplicas"])
def test_the_largest_job_is_that_of_the_code(field: str) -> None:
    assert schema.at(f"spec.{field}")["maximum"] == constants.MAX_REPLICAS
    assert schema.at(f"spec.{field}")["minimum"] == 1


def test_the_most_spares_are_those_of_the_code() -> None:
    assert schema.at("spec.spares")["maximum"] == constants.MAX_SPARES


def test_the_longest_wait_for_all_nodes_is_that_of_the_code() -> None:
    assert schema.at("spec.waitForReplicasSeconds")["maximum"] == constants.MAX_WAIT_SECONDS


def test_words_are_those_of_the_code() -> None:
    assert schema.at("spec.rendezvous.backend")["enum"] == list(BACKENDS)
    assert schema.at("spec.successPolicy")["enum"] == list(SUCCESS_POLICIES)
    assert schema.at("spec.cleanPodPolicy")["enum"] == list(CLEAN_POD_POLICIES)


def test_rules_about_ends_of_pods_are_those_of_the_code() -> None:
    rules = schema.at("spec.restartPolicy.rules")
    assert rules["maxItems"] == MAX_RULES
    assert schema.at("spec.restartPolicy.rules[].action")["enum"] == [one.value for one in RuleAction]
    assert schema.at("spec.restartPolicy.rules[].onExitCodes.operator")["enum"] == list(OPERATORS)
    assert schema.at("spec.restartPolicy.rules[].onExitCodes.values")["items"]["maximum"] == HIGHEST_EXIT_CODE


def test_the_description_names_this_operator_as_the_code_does() -> None:
    assert constants.CONTROLLER in schema.at("spec.managedBy")["description"]


def test_the_longest_name_is_that_of_the_code() -> None:
    rule = next(rule for path, rule in schema.rules() if path == "")
    assert f"<= {constants.MAX_NAME_LENGTH}" in rule["rule"]
    longest = f"{'a' * constants.MAX_NAME_LENGTH}-{constants.MAX_REPLICAS - 1}-99999999"
    assert len(longest) <= 63


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_variables_are_refused_and_named_in_the_message(name: str) -> None:
    rule = next(rule for path, rule in schema.rules() if "ELASTICJOB_" in rule["rule"])
    assert f"'{name}'" in rule["rule"]
    assert name in rule["message"]


def test_what_the_operator_adds_to_a_pod_is_refused_in_templates() -> None:
    text = " ".join(rule["rule"] for path, rule in schema.rules() if path == "spec.template.spec")
    for name in (constants.INJECT_CONTAINER, constants.LIBRARY_VOLUME, constants.IDENTITY_VOLUME):
        assert f"'{name}'" in text


def test_defaults_are_those_of_the_code() -> None:
    plain = ElasticJobSpec(template={}, worker_container="worker")
    default = {name: one["default"] for name, one in schema.at("spec")["properties"].items() if "default" in one}
    assert default == {
        "replicas": plain.replicas,
        "stepSize": plain.step_size,
        "spares": plain.spares,
        "waitForReplicasSeconds": plain.wait_for_replicas,
        "nprocPerNode": int(plain.nproc_per_node),
        "rendezvous": {},
        "restartPolicy": {},
        "successPolicy": plain.success_policy,
        "suspend": plain.suspend,
        "cleanPodPolicy": plain.clean_pod_policy,
        "inject": plain.inject,
    }
    assert schema.at("spec.restartPolicy.maxRestarts")["default"] == plain.max_restarts


def test_time_outs_are_those_of_torch_elastic() -> None:
    plain = RendezvousSpec()
    properties = schema.at("spec.rendezvous")["properties"]
    assert {name: one["default"] for name, one in properties.items() if "default" in one} == {
        "backend": plain.backend,
        "joinTimeoutSeconds": plain.join_timeout,
        "lastCallTimeoutSeconds": plain.last_call_timeout,
        "closeTimeoutSeconds": plain.close_timeout,
        "heartbeatTimeoutSeconds": plain.heartbeat_timeout,
        "keepAliveIntervalSeconds": plain.keep_alive_interval,
        "keepAliveMaxAttempts": plain.keep_alive_max_attempts,
    }


def test_lists_and_strings_in_rules_are_bounded() -> None:
    for path in ("containers", "initContainers", "volumes", "containers[].env"):
        assert schema.at(f"spec.template.spec.{path}")["maxItems"] > 0


def failed_world() -> World:
    world = running(3, minReplicas=1, restartPolicy={"maxRestarts": 1})
    world.exit(1, 137, why="OOMKilled", message="out of memory")
    world.settle()
    world.run(1)
    world.form(0, 1, 2, cause="digits-1 failed", last_round_seconds=0.25, worker_failures=1, deadline_seconds=5.0)
    world.settle()
    return world


def suspended_world() -> World:
    world = running(2)
    world.spec(suspend=True)
    world.settle()
    return world


def crash_looping_world() -> World:
    world = running(3, minReplicas=1, restartPolicy={"maxRestarts": 9})
    world.mark_deleted(2)
    for _ in range(3):
        world.pod(1)["metadata"]["creationTimestamp"] = "2030-01-01T12:00:00Z"
        world.pod(1)["spec"]["nodeName"] = "machine-7"
        world.exit(1, 1)
        world.settle()
        world.later(10)
        world.settle()
    assert {"quickEnds", "suspects", "roundDrained"} <= world.status["ledger"].keys()
    return world


def restarting_world() -> World:
    world = running(2)
    world.exit_in_place(1)
    world.settle()
    assert "endsInPlace" in world.status["ledger"]
    return world


@pytest.mark.parametrize(
    "make", [lambda: running(3), failed_world, suspended_world, crash_looping_world, restarting_world]
)
def test_the_schema_knows_every_field_of_the_status(make: type[World]) -> None:
    status = make().status
    assert list(schema.unknown_fields(schema.at("status"), status)) == []
    jsonschema.validate(status, schema.at("status"))
