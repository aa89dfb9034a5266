from __future__ import annotations

import json
from typing import Any

from holdfast._ops.openapi import document
from holdfast._ops.routes import ROUTES
from holdfast._ops.vocabulary import DESCRIPTIONS, EXAMPLES

DOCUMENT = document(ROUTES)


def operations() -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def references(part: object) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(references(inner) for inner in part.values()))
    return set().union(*(references(inner) for inner in part)) if isinstance(part, list) else set()


def test_every_route_stands_in_it_under_a_name_of_its_own() -> None:
    assert set(operations()) == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for operation in operations().values()]
    assert len(set(names)) == len(names)


def test_it_says_who_may() -> None:
    for route in ROUTES:
        operation = operations()[route.method, route.path]
        assert bool(operation["security"]) == (route.role is not None)
        assert {"401", "403"} <= operation["responses"].keys() or route.role is None
        assert route.role is None or f"role {route.role}." in operation["description"]


def test_it_leads_nowhere_but_to_what_it_holds() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert references(DOCUMENT) == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert "$defs" not in json.dumps(DOCUMENT)


def test_ids_are_strings_there() -> None:
    story = DOCUMENT["components"]["schemas"]["JobStory"]["properties"]["id"]
    assert (story["type"], story["pattern"]) == ("string", "^[0-9]{1,19}$")
    (parameter,) = operations()["GET", "/api/v1/jobs/{id}"]["parameters"]
    assert parameter["schema"]["type"] == "string"


def test_a_parameter_that_may_be_left_out_is_never_null() -> None:
    for operation in operations().values():
        for parameter in operation.get("parameters", ()):
            assert "null" not in json.dumps(parameter), parameter


def test_every_property_and_parameter_is_described_and_no_description_is_left_over() -> None:
    described: dict[str, set[str]] = {}
    for schema in DOCUMENT["components"]["schemas"].values():
        for name, field in schema.get("properties", {}).items():
            described.setdefault(name, set()).add(field.get("description", ""))
    for operation in operations().values():
        assert operation["summary"]
        for parameter in operation.get("parameters", ()):
            described.setdefault(parameter["name"], set()).add(parameter["schema"].get("description", ""))
    assert {name for name, texts in described.items() if "" in texts} == set()
    used = {name for name, text in DESCRIPTIONS.items() if text in described.get(name, ())}
    assert DESCRIPTIONS.keys() - used == set()
    assert EXAMPLES.keys() <= described.keys()


def test_every_list_has_the_same_shape() -> None:
    for (method, path), operation in operations().items():
        if operation["operationId"].startswith("list_"):
            answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
            properties = DOCUMENT["components"]["schemas"][answer.rpartition("/")[2]]["properties"]
            assert {"items", "next"} <= properties.keys(), (method, path)
