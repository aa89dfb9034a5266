"""The table of mistakes. Each is made for real, and its message is compared and graded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.kit.databases import clone
from tests.mistakes.mistake import SHOP, Mistake, faults
from tests.mistakes.table import IN_COMMANDS, IN_PYTHON
from tests.mistakes.trying import command_answer, python_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.postgres import Server

API = [pytest.param(mistake, id=mistake.title) for area in IN_PYTHON for mistake in area.mistakes]
COMMANDS = [pytest.param(mistake, id=mistake.title) for area in IN_COMMANDS for mistake in area.mistakes]


@pytest.fixture(scope="module")
def shop_database(server: Server, template: str) -> Iterator[str]:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE empty")
    with clone(server, template) as url:
        yield url
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("DROP DATABASE empty WITH (FORCE)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    (folder / "broken.py").write_text("import nowhere\n")
    return folder


@pytest.mark.parametrize("mistake", API)
def test_an_api_mistake(mistake: Mistake, shop_database: str) -> None:
    message = python_answer(mistake.written, shop_database)
    assert mistake.is_answered_by(message), f"answered by: {message}"
    assert faults(mistake, message) == []


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_mistake(mistake: Mistake, folder: Path, shop_database: str) -> None:
    status, message = command_answer(mistake.written, folder, shop_database)
    assert status in {1, 2, 5}
    assert mistake.is_answered_by(message), f"answered by: {message}"
    assert faults(mistake, message) == []


def test_the_table_is_large_and_has_no_title_twice() -> None:
    titles = [mistake.title for area in (*IN_PYTHON, *IN_COMMANDS) for mistake in area.mistakes]
    assert len(API) >= 100
    assert len(COMMANDS) >= 40
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("TypeError: 'Topic' object has no attribute 'isprintable', write it", "it is a message of Python's own"),
        ("mail: wrong", "it does not say what is wrong"),
        ("the address of mail is postgresql://shop:hush@db: use another", "it shows a secret"),
        ("something about another thing entirely: write it differently", "it names nothing of what was written"),
        ("mail is not a good thing to have here", "it does not say what to do"),
    ],
)
def test_a_bad_message_is_graded_as_bad(message: str, fault: str) -> None:
    found = faults(Mistake("", "app.relay('mail')", ""), message)
    assert any(re.match(re.escape(fault), one) for one in found)
