"""Write the dashboard's client from the OpenAPI document of the operations API: `python -m tools.dashboard`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from holdfast._ops.openapi import document
from holdfast._ops.responses.job import Severity
from holdfast._ops.routes import BASE, PREFIX, ROUTES
from holdfast._store.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = Path(__file__).parent.parent / "dashboard" / "src" / "openapi.ts"

_HEAD = """\
// Written by `python -m tools.dashboard` from the OpenAPI document: change holdfast._ops.routes, requests or responses.

import type { Client } from "./client";

type Signal = AbortSignal | undefined;
const part = encodeURIComponent;
"""
_ALIASES = {"Status": list(get_args(JobStatus)), "Severity": list(get_args(Severity))}
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_JSON = "application/json"


def client() -> str:
    """Return the text of the file: a type for each schema and query, and a function for each route that has one."""
    # As with several databases, so that a path shows whether the route is about one of them.
    found = document(tuple(route.of_one_of_several() for route in ROUTES))
    lines = [_HEAD]
    lines += [f"export type {name} = {_one_of(words)};" for name, words in _ALIASES.items()]
    for name, schema in found["components"]["schemas"].items():
        lines += ["", *_declaration(name, schema)]
    functions: list[str] = []
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if path.startswith(BASE) and "/outbox/" not in path:
                lines += _query(operation)
                functions += _function(path, method, operation)
    head = "/** Every route. `at` gives the path of one that is about a database. */\n"
    head += "export const operations = (client: Client, at: (path: string) => string) => ({"
    return "\n".join([*lines, "", head, *functions, "});"]) + "\n"


def _declaration(name: str, schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield f"export type {name} = {_choice(schema['enum'])};"
        return
    yield f"export interface {name} {{"
    for field, of in schema["properties"].items():
        yield f"  {field}{'' if field in schema.get('required', ()) else '?'}: {_type(of)};"
    yield "}"


def _query(operation: dict[str, Any]) -> Iterator[str]:
    if asked := _parameters(operation, "query"):
        yield f"\nexport type {_query_name(operation)} = {{"
        for parameter in asked:
            yield f"  {parameter['name']}?: {_type(parameter['schema'])} | null;"
        yield "};"


def _function(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    answer = operation["responses"]["200"]["content"]
    names = [parameter["name"] for parameter in _parameters(operation, "path") if parameter["name"] != "database"]
    given = [f"{name}: string" for name in names]
    address = _address(path)
    if "text/event-stream" in answer:
        yield f"  {_camel(operation)}: () => client.address({address}),"
    elif "schema" in answer.get(_JSON, {}):
        passed = [address]
        if body := operation.get("requestBody"):
            given.append(f"body: {_type(body['content'][_JSON]['schema'])}")
            passed.append("body")
        elif _parameters(operation, "query"):
            given.append(f"query: {_query_name(operation)} = {{}}")
            passed.append("query")
        elif method == "get":
            passed.append("{}")
        given.append("signal?: Signal")
        passed.append("signal")
        if any(parameter["name"] == "If-Match" for parameter in _parameters(operation, "header")):
            given.append("ifMatch?: string")
            passed.append("ifMatch")
        yield f"  {_camel(operation)}: ({', '.join(given)}) =>"
        yield f"    client.{method}<{_type(answer[_JSON]['schema'])}>({', '.join(passed)}),"


def _address(path: str) -> str:
    of_a_database = path.startswith(PREFIX)
    inner = path.removeprefix(f"{PREFIX if of_a_database else BASE}/")
    filled = re.sub(r"\{(\w+)\}", r"${part(\1)}", inner if of_a_database else path.lstrip("/"))
    quoted = f"`{filled}`" if "${" in filled else json.dumps(filled)
    return f"at({quoted})" if of_a_database else quoted


def _parameters(operation: dict[str, Any], where: str) -> list[dict[str, Any]]:
    return [parameter for parameter in operation.get("parameters", ()) if parameter["in"] == where]


def _camel(operation: dict[str, Any]) -> str:
    first, *words = operation["operationId"].split("_")
    return str(first + "".join(word.capitalize() for word in words))


def _query_name(operation: dict[str, Any]) -> str:
    return f"{_camel(operation)[0].upper()}{_camel(operation)[1:]}Query"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " | ".join(_type(one) for one in choices)
    if "enum" in schema or "const" in schema:
        return _choice(schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        inner = _type(schema["items"])
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties", True)
        return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'unknown'}>"
    return _SCALARS[schema["type"]] if "type" in schema else "unknown"


def _choice(words: list[Any]) -> str:
    for name, known in _ALIASES.items():
        if words == known:
            return name
    return _one_of(words)


def _one_of(words: list[Any]) -> str:
    return " | ".join(json.dumps(word) for word in words)


def main() -> None:
    CLIENT.write_text(client())
    print(CLIENT.name)


if __name__ == "__main__":
    main()
