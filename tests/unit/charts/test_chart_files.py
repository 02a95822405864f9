"""What can be said about the chart without running Helm."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomllib
import yaml

from elasticjob.operator.settings import Settings, variable

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "elasticjob"
CRD = REPOSITORY / "crds" / "elasticjobs.yaml"


@pytest.fixture
def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


@pytest.fixture
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return loaded


def settings_in_the_chart() -> set[str]:
    return set(re.findall(r"ELASTICJOB_OPERATOR_\w+", (CHART / "templates" / "deployment.yaml").read_text()))


def value_paths(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Every value that the schema knows one by one; free-form maps count as one value."""
    for name, value in values.items():
        known = schema.get("properties", {}).get(name, {})
        if known.get("properties") and isinstance(value, dict) and known.get("additionalProperties") is False:
            yield from value_paths(value, known, f"{prefix}{name}.")
        else:
            yield prefix + name


def schema_paths(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, known in schema["properties"].items():
        if known.get("properties") and known.get("additionalProperties") is False and name != "resources":
            yield from schema_paths(known, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_the_default_values_satisfy_the_schema(values: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)

    jsonschema.Draft7Validator(schema).validate(values)


def test_the_schema_and_the_default_values_know_the_same_keys(values: dict[str, Any], schema: dict[str, Any]) -> None:
    in_values = {path for path in value_paths(values, schema) if not path.startswith("resources.")} | {"resources"}

    assert in_values == set(schema_paths(schema))


def test_only_global_values_admit_unknown_keys(schema: dict[str, Any]) -> None:
    # A parent chart may share values that this chart does not know.
    open_objects = [
        name
        for name, known in schema["properties"].items()
        if known.get("properties") and known.get("additionalProperties") is not False
    ]

    assert open_objects == ["global"]


def test_the_chart_ships_the_one_definition_that_there_is() -> None:
    shipped = CHART / "crds" / "elasticjobs.yaml"

    assert shipped.is_symlink()
    assert shipped.resolve() == CRD
    assert yaml.safe_load(shipped.read_text())["metadata"]["name"] == "elasticjobs.elasticjob.dev"


def test_chart_image_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    image = re.search(r"ARG VERSION=(\S+)", (REPOSITORY / "Dockerfile").read_text())

    assert image is not None
    assert {chart["version"], chart["appVersion"], image[1]} == {package}


def test_the_chart_sets_only_settings_that_the_operator_knows() -> None:
    # The operator refuses to start with a setting that it does not know.
    assert settings_in_the_chart() <= {variable(one.name) for one in fields(Settings)}


def test_the_image_runs_the_operator_as_the_user_that_the_chart_demands() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()

    assert "\nUSER 65532:65532\n" in dockerfile
    assert 'ENTRYPOINT ["python", "-m", "elasticjob.operator"]' in dockerfile
    assert "runAsUser: 65532" in (CHART / "templates" / "deployment.yaml").read_text()
