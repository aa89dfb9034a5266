"""The long proofs: everything, with all variants, on each PostgreSQL. .ci/proof.md has their last results.

python -m tools.prove                                 every part on every version; takes hours
python -m tools.prove --postgres 18 --parts variants  one of them; the page keeps the last result of the others
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

from tools.postgres import VERSIONS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / ".ci" / "proof.md"
MUTATIONS = "tests/seeds/test_mutations.py"
PARTS = {
    "suite": ["--processes", "4", "--ignore=tests/browser"],
    "variants": [
        *("--processes", "2", "--timeout=0", "-m", "prove or hypothesis", "--ignore=tests/labs/chaos"),
        f"--ignore={MUTATIONS}",
    ],
    "faults": ["--timeout=0", "-m", "prove", "tests/labs/chaos"],
    "mutations": ["--processes", "2", "--timeout=0", "-m", "prove", MUTATIONS],
}
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (.*) \|$")
FAILURE = re.compile(r"^- PostgreSQL (\d+), (\w+): `(.*)`$")


class Result(NamedTuple):
    cells: str
    """The columns of the page from the number of tests on."""
    failures: tuple[str, ...]


Results: TypeAlias = dict[tuple[int, str], Result]
"""By the version of PostgreSQL and the part."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.prove", description=__doc__)
    parser.add_argument("--postgres", nargs="+", type=int, choices=VERSIONS, default=list(VERSIONS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    chosen = parser.parse_args(argv)
    results = written(PAGE.read_text()) if PAGE.exists() else {}
    for version in chosen.postgres:
        for part in chosen.parts:
            print(f"=== PostgreSQL {version}, {part}", flush=True)
            results[version, part] = prove(version, part)
            PAGE.write_text(page(results))
    return int(any(results[version, part].failures for version in chosen.postgres for part in chosen.parts))


def prove(version: int, part: str) -> Result:
    """Run one part on one PostgreSQL, and return what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *PARTS[part]]
        settings = os.environ | {"HOLDFAST_TEST_POSTGRES": str(version), "HYPOTHESIS_PROFILE": "prove"}
        if part == "suite":
            del settings["HYPOTHESIS_PROFILE"]
        subprocess.run(command, cwd=ROOT, env=settings, check=False)
        return read(report.read_text(), commit=_commit(), day=datetime.now(UTC).date().isoformat())


def read(report: str, *, commit: str, day: str) -> Result:
    """Return the result that a report in the JUnit format tells."""
    root = ET.fromstring(report)  # noqa: S314 - pytest wrote it a moment ago
    cases = list(root.iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    seconds = sum(float(suite.get("time", 0)) for suite in root.iter("testsuite"))
    passed = len(cases) - len(failed) - skipped
    cells = f"{passed:,} | {len(failed)} | {skipped} | {seconds:,.0f} s | {day}, {commit}"
    return Result(cells, tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed))


def page(results: Results) -> str:
    """Return the page."""
    rows = [f"| {version} | {part} | {found.cells} |" for (version, part), found in sorted(results.items())]
    failures = [
        f"- PostgreSQL {version}, {part}: `{name}`"
        for (version, part), found in sorted(results.items())
        for name in found.failures
    ]
    return "\n".join(
        [
            "# The long proofs",
            "",
            "`make prove` runs everything on each PostgreSQL and writes this page. Its parts are `suite`, which every",
            "change must pass; `variants`, the tests that the suite leaves out and 5,000 examples of every property;",
            "`faults`, every fault of the lab by itself and every broken build that the lab must catch; `mutations`,",
            "each statement of [the five documents](../tests/seeds/statements.md) made false in the code, which",
            "its test must notice.",
            "",
            "| PostgreSQL | part | passed | failed | skipped | time | when |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            *(["Failed:", "", *failures, ""] if failures else []),
        ]
    )


def written(text: str) -> Results:
    """Return the results that a page shows."""
    failures: dict[tuple[int, str], list[str]] = {}
    found: dict[tuple[int, str], str] = {}
    for line in text.splitlines():
        if row := ROW.match(line):
            found[int(row[1]), row[2]] = row[3]
        elif failure := FAILURE.match(line):
            failures.setdefault((int(failure[1]), failure[2]), []).append(failure[3])
    return {key: Result(cells, tuple(failures.get(key, ()))) for key, cells in found.items()}


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
