from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import holdfast

# Django's are imported by a configured site only, and `__main__` runs.
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast.", onerror=lambda _: None)
    if not found.name.startswith(("holdfast.contrib.django", "holdfast.contrib.flask.site", "holdfast.__main__"))
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {name for name in MODULES if any(test.examples for test in finder.find(import_module(name)))}
    assert len(found) >= 13
