"""What the pages and the API touch, at a hundredth of the history that `make bench` measures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from bench.estate import Size, fill
from bench.pages import OTHER_BUFFERS, SEARCH_BUFFERS, count
from bench.questions import questions
from tests.databases import clone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.counting import Count
    from bench.estate import Estate
    from tools.postgres import Server

SIZE = Size(history=100_000, pending=20_000, failed=20_000, runs_a_day=2_000)


# As on a day that has just begun, or where many times more jobs came since they were last counted.
FORGET = """
    WITH ours AS (SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace),
        forgotten AS (DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM ours))
    UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid IN (SELECT oid FROM ours) AND relkind IN ('r', 'i', 'p')
"""


@pytest.fixture(scope="module", params=("statistics", "no statistics"))
def filled(request: pytest.FixtureRequest, server: Server, template: str) -> Iterator[tuple[str, Estate]]:
    with clone(server, template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            estate = fill(conn, SIZE)
            if request.param == "no statistics":
                conn.execute(FORGET)
        yield url, estate


@pytest.fixture(scope="module")
def counts(filled: tuple[str, Estate]) -> dict[str, Count]:
    return asyncio.run(count(*filled))


def test_no_call_touches_more_than_its_bound(filled: tuple[str, Estate], counts: dict[str, Count]) -> None:
    for ask in questions(filled[1]):
        touched = counts[str(ask)]
        bound = SEARCH_BUFFERS if ask.searches else OTHER_BUFFERS
        assert touched.buffers <= bound, f"{ask}: {[(one.name, one.buffers) for one in touched.statements]}"


def test_no_call_reads_a_table_of_jobs_from_end_to_end(counts: dict[str, Count]) -> None:
    for ask, touched in counts.items():
        assert touched.scanned == 0, f"{ask}: {[(one.name, one.scanned) for one in touched.statements]}"


def test_a_search_for_the_newest_walks_down_the_ids(counts: dict[str, Count]) -> None:
    for one in counts["GET /api/jobs: newest"].statements:
        touched = one.plan["Plan"]["Shared Hit Blocks"] + one.plan["Plan"]["Shared Read Blocks"]
        assert touched < 1_000, f"{one.name}: {touched} pages for the newest of its jobs"


def test_statements_are_counted(counts: dict[str, Count]) -> None:
    names = {one.name for one in counts["GET /api/jobs: newest"].statements}
    assert {"search_live_jobs", "search_ended_jobs", "search_failed_jobs"} <= names
    assert counts["GET /api/jobs: a text that is nowhere"].buffers > 1_000
    assert counts["POST /api/jobs/actions: retry, 100 jobs"].buffers > 1_000
