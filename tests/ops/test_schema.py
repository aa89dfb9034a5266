"""schemathesis asks what the OpenAPI document allows, and much that it does not.

No answer is a 5xx, and none is other than the document describes.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._ops.openapi import document
from holdfast._ops.routes import ROUTES
from holdfast.ops import Role, operations
from tests.kit.access import PATIENT
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import schemathesis
    from schemathesis.checks import CheckFunction

    from tests.kit.shop import Shop

# schemathesis is imported when a test runs: every process of the suite collects this file, and one runs it.
EXAMPLES = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "prove" else 12
GENERATION = {"max-examples": EXAMPLES, "deterministic": True, "with-security-parameters": False, "no-shrink": True}

DOCUMENT = document(ROUTES)
# A stream does not end by itself, and readiness answers 503 where no worker lives: they have tests of their own.
LEFT_OUT = {"/api/v1/overview/live", "/ready"}
ASKED = [
    (method.upper(), path) for path, methods in DOCUMENT["paths"].items() if path not in LEFT_OUT for method in methods
]


@pytest.fixture(scope="module")
def schema() -> schemathesis.BaseSchema:
    import schemathesis

    config = schemathesis.Config.from_dict({"generation": GENERATION})
    return schemathesis.openapi.from_dict(deepcopy(DOCUMENT), config=config)


@pytest.fixture(scope="module")
def checks() -> list[CheckFunction]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
        checks.unsupported_method,
    ]


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[Served]:
    with Served(operations(shop.app, timeout=PATIENT)) as served:
        yield served


@pytest.mark.nightly(daily=["GET-/api/v1/queues", "POST-/api/v1/queues/{queue}/actions"])
@pytest.mark.parametrize(("method", "path"), ASKED)
def test_every_answer_is_one_that_the_document_describes(  # noqa: PLR0917 - fixtures are arguments
    method: str,
    path: str,
    schema: schemathesis.BaseSchema,
    checks: list[CheckFunction],
    served: Served,
    tokens: Mapping[Role, str],
) -> None:
    from schemathesis.generation.feedback import FeedbackSources
    from schemathesis.pytest._test_builder import build_operation_test
    from schemathesis.python._constants.orchestrator import make_constants_value_source

    headers = {"Authorization": f"Bearer {tokens[Role.DEVELOPER]}"}

    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=served.url, headers=headers, checks=checks, timeout=60)

    # `schema.parametrize()` makes the cases of all operations while tests are collected, by each process.
    test = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=ask,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )
    test()
