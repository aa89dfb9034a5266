from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = [
    "app",
    "codec",
    "contrib.alembic",
    "engine.supervisor",
    "failure",
    "job",
    "lease",
    "logs",
    "ops.percentile",
    "ops.redaction",
    "retry",
    "schedule",
    "settings",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    result = doctest.testmod(import_module(f"holdfast.{name}"), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
