"""The OpenAPI document, made from the table of routes and the models."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from holdfast._distribution import version
from holdfast._ops.access import COOKIE
from holdfast._ops.endpoint import PROBLEM_JSON
from holdfast._ops.requests import PATH
from holdfast._ops.responses.job import Refusal
from holdfast._ops.routes import BASE, PREFIX
from holdfast._ops.vocabulary import DESCRIPTIONS, EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaMode

    from holdfast._ops.routes import Route
    from holdfast._store.answer import Answer

_JSON = "application/json"
_REFERENCE = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_WHY = {
    401: "Nobody is signed in, or the token does not hold",
    403: "The caller's role does not allow this",
    404: "There is none",
    408: "The body did not come in time",
    409: "It cannot be done as things are",
    412: "It has changed since the caller saw it",
    413: "The body is too large",
    414: "The address is too long",
    415: "The body is not plain JSON",
    422: "A parameter or a field is wrong",
    429: "Too many failed sign-ins, or too many requests at once: try again after the seconds of `Retry-After`",
    503: "The database or the object store is out of reach, slow or busy, or this process stops",
}


@cache
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the document. Addresses are relative, so that it is right wherever the application is mounted."""
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast operations",
            "version": version(),
            "description": "Ids are strings; times are UTC; durations are seconds unless the name says otherwise.",
        },
        "servers": [{"url": "../../"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An access token, or a JWT"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": "Made by POST /api/v1/session; to act it needs the header X-Holdfast-Csrf",
                },
            },
        },
    }


class _Schemas:
    """Every model by its name, and references to them."""

    def __init__(self, routes: Iterable[Route]) -> None:
        asked = {model for route in routes if (model := route.body) is not None}
        answered = {model for route in routes for model in (*answers(route), *dict(route.also).values())} | {Refusal}
        models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
            *((model, "validation") for model in _by_name(asked)),
            *((model, "serialization") for model in _by_name(answered)),
        ]
        references, definitions = models_json_schema(models, ref_template=_REFERENCE)
        self._references = {key[0]: reference for key, reference in references.items()}
        self.components = {name: _described(_plain(schema)) for name, schema in definitions["$defs"].items()}

    def of(self, model: type[BaseModel]) -> dict[str, Any]:
        return dict(self._references[model])


def answers(route: Route) -> tuple[type[Answer], ...]:
    """Return the models of an answer; none where it is not JSON of ours."""
    if isinstance(route.answer, str):
        return ()
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def refusals(route: Route) -> list[int]:
    """Return every status other than 200 that a route is meant to answer with."""
    found = {414, *route.refusals}
    if route.role is not None:
        found |= {401, 403, 429, 503}
    if route.query is not None or "{" in route.path:
        found.add(422)
    if "{" in route.path:
        found.add(404)
    if route.body is not None:
        found |= {408, 413, 415, 422}
    if _is_write(route):
        found |= {409, 422}
    return sorted(found)


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [_tag(route.path)],
        "responses": {"200": _answered(route, schemas)},
    }
    if route.role is not None:
        operation["description"] = f"Needs the role {route.role}."
        operation["security"] = [{"token": []}, {"session": []}]
    else:
        operation["security"] = []
    if parameters := [*_in_path(route), *_in_query(route), *_in_headers(route)]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": schemas.of(route.body)}}}
    for status in refusals(route):
        operation["responses"][str(status)] = _response(_WHY[status], schemas.of(Refusal), PROBLEM_JSON)
    for status, model in route.also:
        operation["responses"][str(status)] = _response(model.__doc__ or "", schemas.of(model))
    return operation


def _tag(path: str) -> str:
    """Return the subject of a path: its first word."""
    return path.removeprefix(PREFIX).removeprefix(BASE).split("/")[1].partition(".")[0]


def _is_write(route: Route) -> bool:
    return route.role is not None and route.method != "GET"


def _in_headers(route: Route) -> list[dict[str, Any]]:
    """Return the headers of a writing request, see `holdfast._ops.idempotency` and `check_unchanged`."""
    what = "Repeated with the same key within a day, the request is answered as before and not executed again."
    schema = {"type": "string", "minLength": 1, "maxLength": 200, "description": what}
    match = {"type": "string", "description": "The `etag` of the line as it was seen: refused with 412 if it changed"}
    return [
        *([{"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema}] * _is_write(route)),
        *([{"name": "If-Match", "in": "header", "required": False, "schema": match}] * route.edits),
    ]


def _answered(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if isinstance(route.answer, str):
        return {"description": "OK", "content": {route.answer: {}}}
    models = [schemas.of(model) for model in answers(route)]
    return {"description": "OK", "content": {_JSON: {"schema": models[0] if len(models) == 1 else {"oneOf": models}}}}


def _response(why: str, schema: dict[str, Any], media_type: str = _JSON) -> dict[str, Any]:
    return {"description": why, "content": {media_type: {"schema": schema}}}


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _explained(name, _plain(PATH[name].json_schema()))}
        for name in _PARAMETER.findall(route.path)
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _given(_explained(name, _plain(field))),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _plain(schema: Any) -> Any:
    """Leave out titles that only repeat names, and bounds of numbers where the number is written as a string."""
    if isinstance(schema, dict):
        words = {"title"} if isinstance(schema.get("title"), str) else set()
        if schema.get("type") == "string":
            words |= {"ge", "le"}
        return {name: _plain(inner) for name, inner in schema.items() if name not in words}
    return [_plain(inner) for inner in schema] if isinstance(schema, list) else schema


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe the properties of a model that do not describe themselves."""
    properties = {name: _explained(name, field) for name, field in schema.get("properties", {}).items()}
    return schema | ({"properties": properties} if properties else {})


def _explained(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    found = {"description": DESCRIPTIONS[name]} if "description" not in schema and name in DESCRIPTIONS else {}
    fits = not isinstance(EXAMPLES.get(name), str) or "string" in _types(schema)
    return schema | found | ({"examples": [EXAMPLES[name]]} if name in EXAMPLES and fits else {})


def _types(schema: dict[str, Any]) -> set[Any]:
    return {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))} - {None}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """In a query there is no null: what is not given is left out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    rest = {name: inner for name, inner in schema.items() if name not in ("anyOf", "default")}
    only: dict[str, Any] = choices[0]
    return only | rest


def _by_name(models: Iterable[type[BaseModel]]) -> Sequence[type[BaseModel]]:
    return sorted(models, key=lambda model: model.__name__)
