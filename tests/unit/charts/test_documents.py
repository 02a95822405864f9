"""Documents and examples say what is true of this source tree."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from elasticjob.operator.model import ElasticJobSpec
from tests.unit.charts import api_reference

REPOSITORY = api_reference.REPOSITORY
EXAMPLES = sorted(REPOSITORY.glob("examples/*/elasticjob.yaml"))
DOCUMENTS = sorted([*REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("*.md"), *REPOSITORY.glob("examples/**/*.md")])


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(api_reference.DEFINITION.read_text())
    return loaded


def test_the_api_reference_is_that_of_the_definition() -> None:
    assert api_reference.REFERENCE.read_text() == api_reference.current(), (
        "run: python -m tests.unit.charts.api_reference"
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_satisfies_the_definition_and_the_operator(example: Path, definition: dict[str, Any]) -> None:
    job = yaml.safe_load(example.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    jsonschema.Draft7Validator(schema).validate(job)

    assert ElasticJobSpec.from_dict(job["spec"]).worker_container == "worker"
    unknown = set(job["spec"]) - set(schema["properties"]["spec"]["properties"])
    assert not unknown


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())

    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]

    assert not missing
