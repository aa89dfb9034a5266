"""The README is short, and leads somewhere. tests/docs runs its blocks."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
LONGEST = 200


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LONGEST


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
