"""The JSON schemas of the payloads of kinds, for programs in other languages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PydanticUserError, TypeAdapter

from holdfast._logs.failure import Failure
from holdfast._model.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._model.declared_kind import DeclaredKind
    from holdfast._model.kind import Kind


def payload_schemas(kinds: Iterable[Kind[..., Any] | DeclaredKind[Any]]) -> dict[str, Any]:
    """Return the JSON schema of an object that has the payload of each kind under its name."""
    adapters: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
    adapters = [(kind.name, "validation", kind.adapter) for kind in kinds]
    try:
        found, shared = TypeAdapter.json_schemas(adapters, ref_template="#/$defs/{model}")
    except PydanticUserError as exc:
        raise InvalidJob(f"a payload has no JSON schema: {Failure.of(exc).text}") from None
    schemas = {name: found[name, "validation"] for name, *_ in sorted(adapters, key=lambda adapter: adapter[0])}
    text = json.dumps([schemas, shared])
    for name, schema in schemas.items():
        # Pydantic shares the payload itself, too, where a plain schema is easier to read.
        if text.count(f'"{schema.get("$ref")}"') == 1:
            schemas[name] = shared["$defs"].pop(schema["$ref"].rpartition("/")[2])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": schemas,
        "required": [*schemas],
        **shared,
    }
