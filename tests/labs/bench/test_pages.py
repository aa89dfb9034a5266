"""The buffers that the pages and the API touch, at a hundredth of the history that `make bench` measures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from labs.bench.estate import Size, fill
from labs.bench.pages import OTHER_BUFFERS, SEARCH_BUFFERS, count
from labs.bench.questions import questions

if TYPE_CHECKING:
    from labs.bench.counting import Count
    from labs.bench.estate import Estate

pytestmark = pytest.mark.nightly

SIZE = Size(history=100_000, pending=20_000, failed=20_000, runs_a_day=2_000)


# As on a day that has just begun, or where many times more jobs came since they were last counted.
FORGET = """
    WITH ours AS (SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace),
        forgotten AS (DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM ours))
    UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid IN (SELECT oid FROM ours) AND relkind IN ('r', 'i', 'p')
"""


# One test, not one for each claim: filling and counting take a minute, and two processes would share the claims.
@pytest.mark.parametrize(
    "known", [pytest.param(True, id="statistics", marks=pytest.mark.prove), pytest.param(False, id="no statistics")]
)
def test_what_calls_touch(database: str, *, known: bool) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        estate = fill(conn, SIZE)
        if not known:
            conn.execute(FORGET)
    counts = asyncio.run(count(database, estate))
    _statements_are_counted(counts)
    _no_call_touches_more_than_its_bound(estate, counts)
    _no_call_reads_a_table_of_jobs_from_end_to_end(counts)
    _a_search_for_the_newest_walks_down_the_ids(counts)


def _statements_are_counted(counts: dict[str, Count]) -> None:
    names = {one.name for one in counts["GET /api/v1/jobs: newest"].statements}
    assert {"search_live_jobs", "search_ended_jobs", "search_failed_jobs"} <= names
    assert counts["GET /api/v1/jobs: a text that is nowhere"].buffers > 1_000
    assert counts["POST /api/v1/jobs/actions: retry, 100 jobs"].buffers > 1_000


def _no_call_touches_more_than_its_bound(estate: Estate, counts: dict[str, Count]) -> None:
    for ask in questions(estate):
        touched = counts[str(ask)]
        bound = SEARCH_BUFFERS if ask.searches else OTHER_BUFFERS
        assert touched.buffers <= bound, f"{ask}: {[(one.name, one.buffers) for one in touched.statements]}"


def _no_call_reads_a_table_of_jobs_from_end_to_end(counts: dict[str, Count]) -> None:
    for ask, touched in counts.items():
        assert touched.scanned == 0, f"{ask}: {[(one.name, one.scanned) for one in touched.statements]}"


def _a_search_for_the_newest_walks_down_the_ids(counts: dict[str, Count]) -> None:
    for one in counts["GET /api/v1/jobs: newest"].statements:
        touched = one.plan["Plan"]["Shared Hit Blocks"] + one.plan["Plan"]["Shared Read Blocks"]
        assert touched < 1_000, f"{one.name}: {touched} pages for the newest of its jobs"
