"""Every test runs once, those of a file in one process, and a process that ends early is no way to pass."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.tools.test_witness import outside

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import os, pytest
from pathlib import Path

@pytest.fixture(scope="module")
def made():
    with Path("made").open("a") as file:
        print(__name__, os.getpid(), file=file)

@pytest.fixture(scope="session", autouse=True)
def whole(tmp_path_factory):
    yield tmp_path_factory.getbasetemp()
    with Path("ended").open("a") as file:
        print(__name__, os.getpid(), file=file)

@pytest.mark.parametrize("number", range(5))
def test_it(number, made, tmp_path):
    with Path("ran").open("a") as file:
        print(__name__, number, os.getpid(), file=file)
"""
FAILS = """
import pytest
from pathlib import Path

@pytest.fixture(scope="session", autouse=True)
def whole():
    yield
    Path(f"{__name__}.ended").touch()

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    print("written by", __name__, number, end=".")
    assert False
"""
ENDS = "import os\ndef test_ends(): os._exit(3)\ndef test_after(): pass\n"


def run(folder: Path, *options: str, **files: str) -> str:
    """Run these files in three processes, and return the output."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    plugins = ("-p", "tests.kit.forks", "-p", "no:cacheprovider")
    ended = subprocess.run(  # noqa: S603 - pytest, on the files above
        [sys.executable, "-m", "pytest", "-rfE", *plugins, "--processes", "3", *options],
        cwd=folder,
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(ended.returncode) == ("failed" in ended.stdout), ended.stdout + ended.stderr
    return ended.stdout


def test_all_run_once_and_those_of_a_file_in_one_process(tmp_path: Path) -> None:
    assert "20 passed" in run(tmp_path, a=TESTS, b=TESTS, c=TESTS, d=TESTS)
    ran, made, ended = (
        [line.split() for line in (tmp_path / name).read_text().splitlines()] for name in ("ran", "made", "ended")
    )
    assert sorted(name for name, *_ in ran) == [f"test_{file}" for file in "abcd" for _ in range(5)]
    assert len({(name, number) for name, number, _ in ran}) == 20
    assert sorted(made) == sorted([name, pid] for name, pid in {(name, pid) for name, _, pid in ran})
    assert len(made) == 4, "a file's fixture is made once"
    assert sorted(ended) == sorted(made), "and what lasts as long as its process ends with it"
    assert 1 < len({pid for _, pid in made}) <= 3


def test_what_a_test_has_written_is_shown_when_it_fails(tmp_path: Path) -> None:
    output = run(tmp_path, a=FAILS, b=FAILS, c=FAILS)
    written = sorted(re.findall(r"^written by test_(\w) (\d+)\.$", output, re.MULTILINE))
    assert written == sorted((file, str(number)) for file in "abc" for number in range(20))


def test_a_process_that_ends_fails_its_test_and_no_other(tmp_path: Path) -> None:
    output = run(tmp_path, a=TESTS, b=ENDS, c=TESTS)
    assert "FAILED test_b.py::test_ends - its process ended with 3" in output
    assert "1 failed, 11 passed" in output


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_it_stops_when_it_is_asked_to(tmp_path: Path, option: str) -> None:
    output = run(tmp_path, option, **{f"f{n}": FAILS for n in range(40)})
    failed = set(re.findall(r"^FAILED (test_\w+)", output, re.MULTILINE))
    assert 1 <= len(failed) <= 3, "each process stops at its first"
    assert {path.stem for path in tmp_path.glob("*.ended")} == failed, "and ends its fixtures"
