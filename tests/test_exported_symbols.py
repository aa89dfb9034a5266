"""A type checker of a user sees the names of the front door, all with known types, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.test_front_door import NAMES

# Modules that Django and Flask find by their places. Types of Django's fields are known only to its own plugin.
FOUND_BY_PLACE = ("holdfast.contrib.django.", "holdfast.contrib.flask.site.")


@pytest.fixture(scope="module")
def symbols() -> list[dict[str, Any]]:
    """The symbols of the public interface, as pyright finds them, and those that they refer to."""
    scripts = Path(sys.executable).parent
    ended = subprocess.run(  # noqa: S603 - a tool of this environment
        [scripts / "pyright", "--verifytypes", "holdfast", "--ignoreexternal", "--outputjson"],
        env=os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    symbols: list[dict[str, Any]] = json.loads(ended.stdout)["typeCompleteness"]["symbols"]
    return symbols


@pytest.fixture(scope="module")
def exported(symbols: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {symbol["name"]: symbol for symbol in symbols if symbol["isExported"]}


def test_a_checker_sees_the_names_of_the_front_door(exported: dict[str, dict[str, Any]]) -> None:
    seen = {
        name
        for name, symbol in exported.items()
        if symbol["category"] not in {"module", "type variable"} and not name.endswith("__")
    }
    public = {f"holdfast.{name}" for name in holdfast.__all__}
    public |= {
        f"{module}.{name}" for module, names in NAMES.items() for name in names if f"{module}.{name}" not in NAMES
    }
    outside = {name for name in seen - public if not name.startswith(FOUND_BY_PLACE)}
    assert (outside, public - seen) == (set(), set())


def test_every_type_is_declared(symbols: list[dict[str, Any]], exported: dict[str, dict[str, Any]]) -> None:
    """A checker may infer an attribute without an annotation as it likes: write `self.name: str = …`."""
    undeclared = {
        f"{symbol['name']}: {found['message']}"
        for symbol in symbols
        for found in symbol["diagnostics"]
        if re.search("missing type annotation|[Aa]mbiguous", found["message"])
    }
    assert {found for found in undeclared if not found.startswith(FOUND_BY_PLACE)} == set()
    unknown = {name for name, symbol in exported.items() if not symbol["isTypeKnown"]}
    assert {name for name in unknown if not name.startswith(FOUND_BY_PLACE)} == set()
