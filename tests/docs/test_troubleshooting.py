"""Every symptom of docs/how-to/troubleshooting.md is brought about, and the commands of its section show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.docs import symptoms
from tests.docs.block import ROOT, Block, blocks
from tests.docs.conftest import SHOP
from tests.docs.page import Run

if TYPE_CHECKING:
    from pathlib import Path

    from tools.postgres import Server

PAGE = "docs/how-to/troubleshooting.md"


def sections() -> dict[str, list[Block]]:
    """Return the blocks of each section, by the name of the function that brings its symptom about."""
    found: dict[str, list[Block]] = {}
    headings = [
        (number, re.sub(r"\W+", "_", line.removeprefix("## ").lower()))
        for number, line in enumerate((ROOT / PAGE).read_text("utf-8").splitlines(), 1)
        if line.startswith("## ")
    ]
    for block in blocks(PAGE):
        name = max((number, name) for number, name in headings if number < block.line)[1]
        found.setdefault(name, []).append(block)
    return found


@pytest.mark.parametrize("name", sections())
def test_the_commands_show_the_symptom(  # noqa: PLR0917 - fixtures are arguments
    name: str,
    variables: dict[str, str],
    postgres: dict[str, str],
    shop: str,
    server: Server,
    template: str,
    tmp_path: Path,
) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {SHOP} TEMPLATE {template} STRATEGY file_copy")
    given = variables | postgres | {"HOLDFAST_DATABASE_URL": f"postgresql://localhost/{SHOP}"}
    with symptoms.Stage(tmp_path, given, shop, server) as stage:
        getattr(symptoms, name)(stage)
        with Run(tmp_path, stage.variables, shop) as run:
            symptoms.prepare(run, name)
            run.run(sections()[name])
