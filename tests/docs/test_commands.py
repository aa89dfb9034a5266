"""Every command that a page shows is one that the command line accepts."""

from __future__ import annotations

import functools
import re
import shlex

import pytest

from holdfast import _cli as cli
from tests.docs.block import blocks, pages


def commands(text: str) -> list[str]:
    """Return the commands of ours in a block. A line that ends in a backslash goes on in the next one.

    An error begins with the command and a colon.
    """
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?(\w+=\S+ )*holdfast (?!\w+: )", line)]


# The commands of docs/reference/cli.md are a synopsis: they name jobs that do not exist, so none of them is run.
LINES = [
    (block.place, line)
    for page in pages()
    for block in blocks(page)
    if block.language in {"sh", "console"}
    for line in commands(block.text)
]


# The tree of all commands takes 20 milliseconds to make, and parsing does not change it.
_tree = functools.cache(cli._parser)


def parsed(line: str) -> str:
    words = shlex.split(line.partition("; ")[0], comments=True)
    command = words[words.index("holdfast") + 1 :]
    ends = [number for number, word in enumerate(command) if word in {"|", "&", ">", "&&"}]
    assert _tree().parse_args(command[: min(ends, default=len(command))]).command == command[0]
    return command[0]


@pytest.mark.parametrize(("place", "line"), LINES, ids=lambda value: value)
def test_the_command_line_accepts_it(place: str, line: str) -> None:
    parsed(line)


def test_a_command_goes_on_after_a_backslash() -> None:
    long = "A=1 holdfast queues set mail \\\n    --concurrency 5 \\\n    --rate 10 > out"
    text = f"# once\n{long}\n$ holdfast queues\ncp \\\na b\n"
    assert commands(text) == ["A=1 holdfast queues set mail --concurrency 5 --rate 10 > out", "holdfast queues"]
    assert [parsed(line) for line in commands(text)] == ["queues", "queues"]
    (wrong,) = commands("holdfast queues set mail \\\n    --concurrencies 5\n")
    with pytest.raises(SystemExit):
        parsed(wrong)
