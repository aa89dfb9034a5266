"""Runs the tests that enter a mutant, in a copy of the checkout, until one fails or there is no time left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from labs.mutants.draw import ROOT
from tools.callers import callers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from labs.mutants.site import Site

Verdict: TypeAlias = Literal["caught", "survived", "invalid", "no test"]

ROUNDS = (30.0, 90.0)
"""Seconds that the tests of a round take on the original. The second round is for what survives the first one."""
PATIENCE = 60.0
_ENDED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PARENT = re.compile(r"\.?[^.]+$")


class Result(NamedTuple):
    site: Site
    verdict: Verdict
    by: str
    """The test that failed; of a survivor, how many tests passed."""
    seconds: float


class SuiteTest(NamedTuple):
    name: str
    seconds: float
    entered: frozenset[str]


def read_tests(folder: Path) -> list[SuiteTest]:
    """Return what labs/mutants/entered.py has recorded."""
    files = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return [
        SuiteTest(name, test["seconds"], frozenset(test["entered"]))
        for found in files
        for name, test in sorted(found.items())
    ]


class Chooser:
    """Chooses the tests for a mutant: those that enter its function, or else what surrounds it, and its module's own.

    The record lacks the functions that run in processes which tests start, such as commands.
    """

    def __init__(self, tests: Sequence[SuiteTest]) -> None:
        self._entering: defaultdict[str, list[SuiteTest]] = defaultdict(list)
        self._files: defaultdict[str, list[SuiteTest]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: len(test.entered)):
            self._files[test.name.partition("::")[0]].append(test)
            for name in test.entered:
                self._entering[name].append(test)
                if not name.startswith("sql::"):
                    self._entering[name.partition("::")[0]].append(test)
        self._callers: Mapping[str, list[str]] = callers()

    def choose(self, site: Site) -> list[SuiteTest]:
        """Return the tests in the order in which to try them: of each file first the one that enters the least."""
        found = next((tests for names in _around(site, self._callers) if (tests := self._of(names))), [])
        files: defaultdict[str, list[SuiteTest]] = defaultdict(list)
        for test in dict.fromkeys([*found, *(test for file in _own(site) for test in self._files.get(file, ()))]):
            files[test.name.partition("::")[0]].append(test)
        return [test for test in chain.from_iterable(zip_longest(*files.values())) if test is not None]

    def _of(self, names: Sequence[str]) -> list[SuiteTest]:
        return list(dict.fromkeys(test for name in names for test in self._entering.get(name, ())))


def _own(site: Site) -> list[str]:
    """Return where the tests of a module are."""
    package, stem = site.file.partition("/")[0].removeprefix("_"), Path(site.file).stem
    return [f"tests/{package}/test_{stem}.py", f"tests/test_{stem}.py"]


def _around(site: Site, called_by: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Yield names, those nearest to the mutant first."""
    if not site.file.endswith(".sql"):
        function = site.function
        while function:
            yield [f"{site.file}::{function}"]
            function = _PARENT.sub("", function)
        yield [site.file]
        return
    names, seen = [site.function], {site.function}
    while names:
        yield [f"sql::{name}" for name in names]
        # Such as `claim_jobs`, or `statement claim` of a file.
        names = [caller.rpartition(" ")[2] for name in names for caller in called_by.get(name, ())]
        names = [name for name in names if name not in seen]
        seen.update(names)
    yield [f"_store/{Path(site.file).stem}.py"]


class Copy:
    """A copy of the checkout, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        pages = "src/holdfast/_ops/pages"
        if (ROOT / pages).exists():
            shutil.copytree(ROOT / pages, folder / pages, dirs_exist_ok=True)
        self._writes = 0

    def try_mutant(self, site: Site, tests: Sequence[SuiteTest]) -> Result:
        path = self.folder / "src" / "holdfast" / site.file
        original, begun, passed = path.read_text(), time.monotonic(), 0
        try:
            self._write(path, site.mutated(original))
            for round_ in rounds(tests):
                code, output = self.run([test.name for test in round_], sum(test.seconds for test in round_))
                if code != 0:
                    invalid = site.file.endswith(".sql") and "SyntaxError" in output
                    failed = _ENDED.search(output)
                    by = "no end" if code is None else failed[1] if failed else "the import"
                    return Result(site, "invalid" if invalid else "caught", by, time.monotonic() - begun)
                passed += len(round_)
        finally:
            self._write(path, original)
        verdict: Verdict = "survived" if passed else "no test"
        return Result(site, verdict, f"{passed} of {len(tests)} tests passed", time.monotonic() - begun)

    def run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """Return the exit status of pytest, None if it did not end, and its output."""
        options = ["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=line", "-rfE"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=PATIENCE + 4 * seconds)
        except subprocess.TimeoutExpired:
            return None, _end(process)
        return process.returncode, output

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time that no compiled file of it has."""
        path.write_text(text)
        self._writes += 1
        os.utime(path, (1_000_000_000 + self._writes,) * 2)


def rounds(tests: Sequence[SuiteTest]) -> Iterator[list[SuiteTest]]:
    """Yield the tests of each round; a test that takes too long for a round comes alone, if it is the first."""
    left = list(tests)
    for seconds in ROUNDS:
        round_: list[SuiteTest] = []
        while left and (not round_ or sum(test.seconds for test in round_) + left[0].seconds <= seconds):
            round_.append(left.pop(0))
        if round_:
            yield round_


def _end(process: subprocess.Popen[str]) -> str:
    """Interrupt pytest, so that it stops its servers, and end it if it does not end."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=PATIENCE / 2)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]
