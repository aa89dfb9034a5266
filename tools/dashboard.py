"""Write the dashboard's types from the models of the operations API: `python -m tools.dashboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from holdfast._ops import requests as question
from holdfast._ops.responses import archive, fleet, job
from holdfast._store.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

TYPES = Path(__file__).parent.parent / "dashboard" / "src" / "types.ts"

_HEAD = (
    "// Written by `python -m tools.dashboard` from holdfast._ops.responses and holdfast._ops.requests: change those.\n"
)
_ALIASES = {"Status": get_args(JobStatus), "Severity": get_args(job.Severity)}
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def types() -> str:
    """Give the text of the file: one interface for each model, what is answered and what is asked."""
    answers = _definitions("serialization", job, fleet, archive)
    questions = _definitions("validation", question)
    lines = [_HEAD]
    for name, words in _ALIASES.items():
        lines.append(f"export type {name} = {_choice(words)};")
    for name, schema in answers.items():
        lines += ["", *_declaration(name, schema, answered=True)]
    for name, schema in questions.items():
        if name not in answers:
            lines += ["", *_declaration(name, schema, answered=False)]
    return "\n".join(lines) + "\n"


def _definitions(mode: Any, *modules: ModuleType) -> dict[str, dict[str, Any]]:
    models = [
        (value, mode)
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value.model_fields
    ]
    definitions: dict[str, dict[str, Any]] = models_json_schema(models)[1]["$defs"]
    return definitions


def _declaration(name: str, schema: dict[str, Any], *, answered: bool) -> Iterator[str]:
    if "enum" in schema:
        yield f"export type {name} = {_choice(schema['enum'])};"
        return
    required = schema.get("required", ())
    yield f"export interface {name} {{"
    for field, of in schema["properties"].items():
        # An answer always has all of its fields.
        optional = "" if answered or field in required else "?"
        yield f"  {field}{optional}: {_type(of)};"
    yield "}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return _choice(schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties", True)
        return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'unknown'}>"
    return _SCALARS[schema["type"]] if "type" in schema else "unknown"


def _choice(words: Any) -> str:
    for name, known in _ALIASES.items():
        if tuple(words) == known and not isinstance(words, tuple):
            return name
    return " | ".join(json.dumps(word) for word in words)


def main() -> None:
    TYPES.write_text(types())
    print(TYPES.name)


if __name__ == "__main__":
    main()
