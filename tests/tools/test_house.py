from __future__ import annotations

import re

import pytest

from tools import house

ANSWERS = re.compile(r"\]\((\.\./[^)]+)\)")


def test_the_picture_in_the_docs_has_these_rooms() -> None:
    shown = re.findall(r"^\| (\d+) \| `(\w+)` \|", house.PAGE.read_text(), re.MULTILINE)
    assert [(int(floor), name) for floor, name in shown] == [(room.floor, room.name) for room in house.rooms()]


def test_the_house_has_at_most_fourteen_floors() -> None:
    assert max(room.floor for room in house.rooms()) <= 14


@pytest.mark.parametrize("place", ANSWERS.findall(house.PAGE.read_text()))
def test_every_answer_leads_somewhere(place: str) -> None:
    assert (house.PAGE.parent / place).exists()
