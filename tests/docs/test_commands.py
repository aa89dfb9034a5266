"""Every command that a page shows is one that the command line accepts."""

from __future__ import annotations

import re
import shlex

import pytest

from holdfast import _cli as cli
from tests.docs.block import blocks, pages

# The commands of docs/reference/cli.md are a synopsis: they name jobs that do not exist, so none of them is run.
# The page of errors shows commands that are refused.
LINES = [
    (block.place, line)
    for page in pages()
    if page != "docs/reference/errors.md"
    for block in blocks(page)
    if block.language in {"sh", "console"}
    for line in re.split(r"(?<!\\\\)\n", block.text)
    if re.match(r"(\$ )?(\w+=\S+ )*holdfast ", line)
]


@pytest.mark.parametrize(("place", "line"), LINES, ids=lambda value: value)
def test_the_command_line_accepts_it(place: str, line: str) -> None:
    words = shlex.split(line.removeprefix("$ "), comments=True)
    command = words[next(number for number, word in enumerate(words) if word == "holdfast") + 1 :]
    ends = [number for number, word in enumerate(command) if word in {"|", "&", ">", "&&"}]
    assert cli._parser().parse_args(command[: min(ends, default=len(command))]).command == command[0]
