"""The page about chains does what it says: its blocks are run one after the other, as in a notebook."""

from __future__ import annotations

import ast
import inspect
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.pace import PATIENT

if TYPE_CHECKING:
    import psycopg

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "chains.md"


async def test_the_page_is_true(database: str, conn: psycopg.AsyncConnection[Any]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"conn": conn}
    for block in blocks:
        code = compile(
            block.replace("postgresql://localhost/shop", database),
            PAGE.name,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        async with names["app"].worker(**PATIENT) if "app.wait(" in block else nullcontext():
            if inspect.isawaitable(running := eval(code, names)):  # noqa: S307 - the page of this very checkout
                await running
    assert len(blocks) > 8


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
