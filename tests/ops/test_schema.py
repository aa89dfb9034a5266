"""schemathesis asks what the OpenAPI document allows, and much that it does not.

No answer is a 5xx, and none is other than the document describes.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from holdfast._ops.openapi import document
from holdfast._ops.routes import ROUTES
from holdfast.ops import Role, operations
from tests.ops.conftest import PATIENT
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.ops.shop import Shop

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
EXAMPLES = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "prove" else 12
GENERATION = {"max-examples": EXAMPLES, "deterministic": True, "with-security-parameters": False, "no-shrink": True}

schema = schemathesis.openapi.from_dict(
    deepcopy(document(ROUTES)), config=schemathesis.Config.from_dict({"generation": GENERATION})
)
# A stream does not end by itself, and readiness answers 503 where no worker lives: they have tests of their own.
asked = schema.exclude(path="/api/overview/live").exclude(path="/ready")


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[Served]:
    with Served(operations(shop.app, timeout=PATIENT)) as served:
        yield served


@asked.parametrize()
def test_every_answer_is_one_that_the_document_describes(
    case: schemathesis.Case[Any], served: Served, tokens: Mapping[Role, str]
) -> None:
    case.call_and_validate(
        base_url=served.url, headers={"Authorization": f"Bearer {tokens[Role.DEVELOPER]}"}, checks=CHECKS, timeout=60
    )
