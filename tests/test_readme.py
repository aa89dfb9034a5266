"""The README is short, and leads somewhere. tests/docs runs its blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
COMPARISON = ROOT / "docs" / "explanation" / "comparison.md"
MEASURED = ROOT / "labs" / "bench" / "peers" / "report.md"
LONGEST = 120
SPEED_COLUMNS = 9
ROUNDED = 0.006


def _rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("*") for cell in line.split("|")[1:-1]] for line in lines]


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LONGEST


def test_the_figures_of_the_comparison_are_those_that_were_measured() -> None:
    measured = {row[0]: row for row in _rows(MEASURED) if len(row) == SPEED_COLUMNS}
    shown = [row for row in _rows(COMPARISON) if re.fullmatch(r"[\d,]+", row[1])]
    assert len(shown) > 1
    for name, rate, times, pickup, *_ in shown:
        row = measured[name.split()[0].lower()]
        drained, ratio = re.findall(r"[\d,.]+", row[5])
        assert rate == drained, name
        assert abs(float(times) - float(ratio)) <= ROUNDED, name
        assert pickup == row[7].split(" / ")[0], name


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
