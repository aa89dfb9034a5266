"""TypeScript types of payloads, from their JSON schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


def interfaces(schema: dict[str, Any]) -> str:
    """Return the type `Payloads`, with the payload of every kind by its name, and the types that they name."""
    lines = ["/** Written by `holdfast kinds --typescript`. An integer beyond 2 ** 53 does not fit into a number. */"]
    lines += [f"export type Payloads = {_type(schema)};"]
    for name, of in schema.get("$defs", {}).items():
        lines += ["", f"export type {_identifier(name)} = {_type(of)};"]
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any] | bool) -> str:  # noqa: FBT001, PLR0911, PLR0912 - one case per keyword of a schema
    if isinstance(schema, bool) or not schema:
        return "unknown"
    if "$ref" in schema:
        return _identifier(schema["$ref"].rpartition("/")[2])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _any_of(map(_type, schema[choice]))
    if "allOf" in schema:
        return " & ".join(map(_type, schema["allOf"]))
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return _any_of(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(map(_type, schema['prefixItems']))}]"
        case "array":
            return f"Array<{_type(schema.get('items', {}))}>"
        case "object" if schema.get("properties"):
            return "{\n" + "".join(f"  {line}\n" for line in _fields(schema)) + "}"
        case "object" if schema.get("additionalProperties") is False:
            return "Record<string, never>"
        case "object":
            return f"Record<string, {_type(schema.get('additionalProperties', {}))}>"
        case [*several]:
            return _any_of(_SCALARS.get(one, "unknown") for one in several)
        case other:
            return _SCALARS.get(str(other), "unknown")


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, of in schema["properties"].items():
        key = name if _NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        yield f"{key}{'' if name in required else '?'}: {_type(of)};".replace("\n", "\n  ")


def _any_of(types: Iterator[str] | map[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "never"


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
