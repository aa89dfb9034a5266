"""Each statement of the documents has a mutation that makes it false, and its test fails then.

The mutations are tried by `python -m tools.prove --parts mutations`; .ci/proof.md has the last result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.seeds.mutation import Mutation, read_mutations
from tests.seeds.table import HERE, PAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _pytest.mark import ParameterSet

    Run = Callable[[str, str], tuple[int, str]]

PASSED, FAILED = 0, 1
ROW = re.compile(r"\| (.*) \| `(.*)::.*` \|")
COPIED = ("src", "tests", "examples", "tools")


def read_tests() -> dict[tuple[str, str], str]:
    """Return the file of each statement's test, as the page shows them."""
    files, document = {}, ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            document = line[3:]
        elif row := ROW.match(line):
            statement, file = row.groups()
            place = ROOT / file if "/" in file else HERE / file
            files[document, statement] = str(place.relative_to(ROOT))
    return files


TESTS = read_tests()


def test_every_statement_has_a_mutation() -> None:
    mutated = [(one.document, one.statement) for one in read_mutations()]
    assert len(mutated) == len(set(mutated)), "one for each"
    assert set(mutated) == set(TESTS), "give each statement a mutation in tests/seeds/mutations"


def test_what_a_mutation_changes_occurs_once() -> None:
    for mutation in read_mutations():
        mutation.changed((ROOT / mutation.file).read_text())


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, without what the tests of statements do not read."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def run(copy: Path) -> Iterator[Run]:
    """Run the tests of a statement, which are in a file, in the copy; return the status of pytest and what it said."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # The mutated modules stand before the installed package, also in the processes that a test starts.
    environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.seeds.warm"]
    with subprocess.Popen(  # noqa: S603 - a module of our own
        command, cwd=copy, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def run(statement: str, file: str) -> tuple[int, str]:
            asked.write(json.dumps([statement, file]) + "\n")
            asked.flush()
            status, output = json.loads(answers.readline())
            return status, output

        yield run
        asked.close()


@pytest.fixture(scope="module")
def passes(run: Run) -> Callable[[str], bool]:
    """Tell whether the tests of a file pass in the copy as it is."""
    return cache(lambda file: run("", file)[0] == PASSED)


def cases() -> Iterator[ParameterSet]:
    """Yield the mutations. Those of one file of tests run in one process, which tries the file only once."""
    for mutation in read_mutations():
        file = TESTS.get((mutation.document, mutation.statement), "")
        yield pytest.param(mutation, file, marks=pytest.mark.group(file), id=mutation.statement)


@pytest.mark.prove
@pytest.mark.parametrize(("mutation", "test"), [*cases()])
def test_a_mutation_is_caught(
    copy: Path, run: Run, passes: Callable[[str], bool], mutation: Mutation, test: str
) -> None:
    assert passes(test), "it fails without the mutation"
    file = copy / mutation.file
    file.write_text(mutation.changed(file.read_text()))
    try:
        status, output = run(mutation.statement, test)
    finally:
        shutil.copy2(ROOT / mutation.file, file)
    assert status == FAILED, f"not caught:\n{output}"
