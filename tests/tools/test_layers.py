from __future__ import annotations

import re

import pytest

from tools import layers
from tools.site import generated

PAGE = layers.ROOT / "docs" / "explanation" / "architecture.md"
ANSWERS = re.compile(r"\]\((\.\./[^)]+)\)")


def test_the_site_has_the_picture_of_these_rooms() -> None:
    page = generated.filled(PAGE.read_text())
    assert "```mermaid\nflowchart TB\n" in page
    shown = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    assert [(int(layer), name) for layer, name in shown] == [
        (package.layer, package.name) for package in layers.packages()
    ]


def test_the_house_has_at_most_fourteen_floors() -> None:
    assert max(package.layer for package in layers.packages()) <= 14


@pytest.mark.parametrize("place", ANSWERS.findall(PAGE.read_text()))
def test_every_answer_leads_somewhere(place: str) -> None:
    assert (PAGE.parent / place).exists()
