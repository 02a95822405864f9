"""The CustomResourceDefinition as data."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).parents[3] / "crds" / "elasticjobs.yaml"

Body = dict[str, Any]


@cache
def definition() -> Body:
    loaded: Body = yaml.safe_load(PATH.read_text())
    return loaded


def version() -> Body:
    found: Body = definition()["spec"]["versions"][0]
    return found


def root() -> Body:
    found: Body = version()["schema"]["openAPIV3Schema"]
    return found


def at(path: str) -> Body:
    """The schema of a field, e.g. `spec.template.spec.containers[].env`."""
    schema = root()
    for part in path.split("."):
        name, _, item = part.partition("[]")
        schema = schema["properties"][name]
        schema = schema["items"] if item == "" and part.endswith("[]") else schema
    return schema


def walk(schema: Body, path: str = "") -> Iterator[tuple[str, Body]]:
    """Every schema below this one with its path."""
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from walk(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def rules() -> Iterator[tuple[str, Body]]:
    """Every validation rule with the path of its schema."""
    for path, schema in walk(root()):
        for rule in schema.get("x-kubernetes-validations", []):
            yield path, rule


def unknown_fields(schema: Body, value: Any, path: str = "") -> Iterator[str]:
    """Paths in a value that the API server would prune."""
    if isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, child in value.items():
            if name not in schema.get("properties", {}):
                yield f"{path}.{name}"
            else:
                yield from unknown_fields(schema["properties"][name], child, f"{path}.{name}")
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(schema["items"], item, f"{path}[]")
