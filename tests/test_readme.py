"""The README is short, and leads somewhere. tests/docs runs its blocks."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
PEERS = README.parent / "docs" / "explanation" / "peers.md"
LONGEST = 200
SPEED_COLUMNS = 9


def _rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LONGEST


def test_its_figures_are_those_of_the_comparison() -> None:
    speeds = {row[0]: row for row in _rows(PEERS) if len(row) == SPEED_COLUMNS}
    shown = _rows(README)
    [drain] = (row for row in shown if row[0].startswith("drain rate"))
    [pickup] = (row for row in shown if row[0].startswith("median pickup"))
    for place, peer in enumerate(("holdfast", "celery", "procrastinate", "pgqueuer", "oban"), 1):
        ratio = re.search(r"\((.*)\)", speeds[peer][5])
        assert ratio is not None
        assert drain[place] == f"{float(ratio[1]):.2f}"
        assert pickup[place] == speeds[peer][7].split(" / ")[0]


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
