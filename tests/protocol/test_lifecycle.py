from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from holdfast._model.errors import AbortReason
from tests.protocol.lifecycle import ENDED, LIVE, NOWHERE, TRANSITIONS

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "lifecycle.md").read_text(encoding="utf-8")


def test_the_diagram_is_the_one_that_is_tested() -> None:
    drawn = re.findall(r"^    (\S+) --> (\S+): (.+)$", PAGE, re.MULTILINE)
    assert {(before, after): tuple(causes.split(", ")) for before, after, causes in drawn} == TRANSITIONS
    assert len(drawn) == len(TRANSITIONS)


def test_the_table_is_the_diagram() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [((before, after), tuple(causes.split(", "))) for before, after, causes in rows] == list(TRANSITIONS.items())


def test_the_answers_are_reasons() -> None:
    section = PAGE[PAGE.index("| answer |") :]
    answers = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert answers == {"busy", *AbortReason} - {AbortReason.error, AbortReason.timeout, AbortReason.shutdown}


def test_every_status_is_drawn(database: str) -> None:
    with psycopg.connect(database) as conn:
        known = [status for (status,) in conn.execute("SELECT unnest(enum_range(NULL::holdfast.status))::text")]
    assert set(known) == {*LIVE, *ENDED}
    assert {status for pair in TRANSITIONS for status in pair} == {*known, NOWHERE}


@pytest.mark.parametrize("status", ENDED)
def test_what_has_ended_stays_so(status: str) -> None:
    assert [after for before, after in TRANSITIONS if before == status] == [NOWHERE]
