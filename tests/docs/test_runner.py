"""The runner of pages finds a page that is wrong."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.block import Block
from tests.docs.page import Run
from tests.docs.terminal import Command, commands, matches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Run(tmp_path, {"PATH": os.defpath, "PYTHON": sys.executable}, "") as run:
        yield run


def _block(language: str, text: str, title: str = "") -> Block:
    return Block("page.md", 1, language, title, text)


def test_commands_are_read_with_their_output() -> None:
    text = "$ first \\\n  --more\n$ second\none\ntwo\n"
    assert list(commands(text)) == [Command("first \\\n  --more", ""), Command("second", "one\ntwo")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one", "one\ntwo\n", False),
        ("o…e", "once more\n", True),
        ("o…e", "two\n", False),
        ("one\n…\nlast", "one\n2\n3\nlast\n", True),
        ("one\n…", "one\n", True),
        ("…\nlast", "first\n", False),
        ("a.c", "abc\n", False),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_other_output_than_shown_fails(run: Run) -> None:
    run.run([_block("console", "$ echo one\none\n")])
    with pytest.raises(AssertionError, match="echo two"):
        run.run([_block("console", "$ echo two\none\n")])


def test_a_command_that_fails_is_found(run: Run) -> None:
    with pytest.raises(AssertionError, match="exit status 1"):
        run.run([_block("sh", "true\nfalse\n")])


def test_a_shell_keeps_what_a_command_set(run: Run) -> None:
    ran = run.run([_block("sh", "export SHOP=open\n"), _block("console", "$ echo $SHOP\nopen\n")])
    assert ran.commands == 2


def test_a_file_is_written_and_run(run: Run) -> None:
    run.run([_block("python", "print(7)\n", "shop.py"), _block("console", f"$ {sys.executable} shop.py\n7\n")])


def test_cells_share_names_and_what_they_print_is_compared(run: Run) -> None:
    cells = [_block("python", "import asyncio\nx = 7\n"), _block("python", "await asyncio.sleep(0)\nprint(x)\n")]
    run.run([*cells, _block("text", "7\n", "Output")])
    with pytest.raises(AssertionError, match="printed"):
        run.run([*cells, _block("text", "8\n", "Output")])
    with pytest.raises(AssertionError, match="NameError"):
        run.run([_block("python", "print(y)\n")])


def test_a_command_that_goes_on_is_waited_for_and_interrupted(run: Run) -> None:
    wait = "import signal; print('ready', flush=True); signal.pause()"
    run.run([_block("console", f'$ {sys.executable} -c "{wait}"\nready\n', "A second terminal")])
    run.run([_block("console", f'$ {sys.executable} -c "{wait}"\nready\n^C\n')])
    with pytest.raises(AssertionError, match="the command ended"):
        run.run([_block("console", "$ echo gone\nready\n", "A third terminal")])
