"""The example of docs/how-to/testing.md runs as it stands there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast.testing
from holdfast.testing import Testing

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES = {match[1]: block for block in BLOCKS if (match := re.match(r"# (\w+\.py)\n", block))}


def test_the_example_runs(pytester: pytest.Pytester, database: str, connect: Any) -> None:
    connect().execute("CREATE TABLE invoice (id int PRIMARY KEY, receipts int NOT NULL DEFAULT 0)")
    assert FILES.keys() == {"shop.py", "conftest.py", "test_shop.py"}
    for name, code in FILES.items():
        (pytester.path / name).write_text(code.replace("postgresql://localhost/shop_test", database))
    scope = "asyncio_default_fixture_loop_scope=function"
    pytester.runpytest_subprocess("-Werror", "-o", scope).assert_outcomes(passed=3)
    assert connect().execute("SELECT count(*) FROM invoice").fetchone() == (0,)


def test_every_block_is_python() -> None:
    for block in BLOCKS:
        compile(block, "testing.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_public_names_are_these() -> None:
    assert set(holdfast.testing.__all__) == {"Drained", "Enqueued", "Ran", "SyncTesting", "Testing"}


def test_every_verb_is_listed() -> None:
    verbs = {name for name in vars(Testing) if not name.startswith("_")}
    assert {verb for verb in verbs if not re.search(rf"`(await )?{verb}[`(]", PAGE)} == set()
