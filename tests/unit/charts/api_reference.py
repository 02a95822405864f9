"""Writes docs/api.md from the definition: `python -m tests.unit.charts.api_reference`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
DEFINITION = REPOSITORY / "crds" / "elasticjobs.yaml"
REFERENCE = REPOSITORY / "docs" / "api.md"

Schema = dict[str, Any]

_HEAD = """# API reference

`{group}/{version}`, kind `{kind}`, short name {short}. Made from `crds/elasticjobs.yaml` by
`python -m tests.unit.charts.api_reference`. How to use the fields is told in [writing a job](writing-a-job.md).
"""


def reference(definition: Schema) -> str:
    """The page for a CustomResourceDefinition with one version."""
    spec = definition["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = spec["names"]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    parts = [_HEAD.format(group=spec["group"], version=version["name"], kind=names["kind"], short=short)]
    for section in ("spec", "status"):
        parts.append(_table(section, schema["properties"][section]))
    parts.append(_rules(schema))
    return "\n".join(parts)


def _table(section: str, schema: Schema) -> str:
    lines = [f"## {section}\n", "| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for path, field, is_required in _fields(schema):
        default = "*required*" if is_required else f"`{json.dumps(field['default'])}`" if "default" in field else ""
        lines.append(f"| `{path}` | {_type(field)} | {default} | {_text(field)} |")
    return "\n".join(lines) + "\n"


def _fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        yield prefix + name, field, name in required and "default" not in field
        inner = field.get("items", field) if field.get("type") == "array" else field
        if "properties" in inner:
            yield from _fields(inner, f"{prefix}{name}{'[]' if inner is not field else ''}.")


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return kind + _limits(field)


def _limits(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", at least {low}"
    return ""


def _text(field: Schema) -> str:
    return " ".join(str(field.get("description", "")).split()).replace("|", "\\|")


def _rules(schema: Schema) -> str:
    lines = ["## Refused at admission\n", "Besides what the types say:\n"]
    messages = [
        f"- `{path or 'the object'}`: {rule.get('message') or rule.get('messageExpression')}"
        for path, one in _validated(schema, "")
        for rule in one["x-kubernetes-validations"]
    ]
    return "\n".join([*lines, *messages]) + "\n"


def _validated(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if "x-kubernetes-validations" in schema:
        yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from _validated(field, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from _validated(schema["items"], f"{path}[]")


def current() -> str:
    """The page for the definition of this source tree."""
    return reference(yaml.safe_load(DEFINITION.read_text()))


if __name__ == "__main__":
    REFERENCE.write_text(current())
    sys.stdout.write(f"{REFERENCE} written\n")
