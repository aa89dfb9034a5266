"""Sorting, filtering and the cursor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets.data_table import ColumnKey

from holdfast._top.grid import Grid
from tests.kit.waiting import until
from tests.kit.workers import FAILED, Worker, enqueue, job
from tests.top.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """Three queues: alpha has one job, beta three, gamma two."""
    conn = connect()
    for queue, jobs in (("alpha", 1), ("beta", 3), ("gamma", 2)):
        enqueue(conn, *(job("k", queue=queue) for _ in range(jobs)))
    return conn


@pytest.mark.nightly
async def test_a_column_is_chosen_by_key_and_turned(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        assert watched.column("due") == ["3", "2", "1"]
        assert "due▼" in watched.text
        await watched.press("o")
        assert watched.column("due") == ["1", "2", "3"]
        assert "due▲" in watched.text
        await watched.press("S", "S")
        assert watched.screen.grid.table.columns[watched.screen.grid.sorted_by].title == "queue"
        assert watched.column("queue") == ["alpha", "beta", "gamma"]
        await watched.press("o")
        assert watched.column("queue") == ["gamma", "beta", "alpha"]


@pytest.mark.nightly
async def test_a_column_is_chosen_by_a_click(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.pilot.click("#queues", offset=(2, 0))
        assert watched.column("queue") == ["alpha", "beta", "gamma"]
        await watched.pilot.click("#queues", offset=(2, 0))
        assert watched.column("queue") == ["gamma", "beta", "alpha"]


async def test_the_cursor_stays_with_its_row(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.press("down")
        assert watched.screen.grid.chosen.queue.name == "gamma"
        enqueue(conn, *(job("k", queue="gamma") for _ in range(5)))
        await until(lambda: watched.column("queue") == ["gamma", "beta", "alpha"])
        assert watched.screen.grid.chosen.queue.name == "gamma"
        assert watched.screen.grid.cursor_row == 0


@pytest.mark.nightly
async def test_words_filter_as_they_are_typed(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.press("slash", *"A")
        assert sorted(watched.column("queue")) == ["alpha", "beta", "gamma"]
        await watched.press(*"LPH")
        assert watched.column("queue") == ["alpha"]
        assert "1 of 3 queues · filter ALPH" in watched.text
        await watched.press("enter")
        await watched.look()
        assert watched.column("queue") == ["alpha"]
        await watched.press("escape")
        assert len(watched.cells) == 3


@pytest.mark.nightly
async def test_one_column_is_filtered_by_its_name(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.press("slash", *"due:3")
        assert watched.column("queue") == ["beta"]
        await watched.press("escape", "slash", *"colour:red")
        assert "no column is named colour: there are queue, state, due" in watched.text


@pytest.mark.nightly
async def test_each_table_keeps_its_own_filter(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.press("slash", *"beta", "enter", "2")
        await watched.look()
        assert len(watched.cells) == 3
        await watched.press("tab", "shift+tab", "1")
        assert watched.column("queue") == ["beta"]


@pytest.mark.nightly
async def test_a_job_without_a_limit_of_attempts(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("endless", max_attempts=None))
    async with watching(database, "7") as watched:
        await watched.press("slash", *"kind:endless", "enter")
        await until(lambda: watched.column("try") == ["0"])
        await watched.press("enter")
        await until(lambda: "attempt 0, no limit" in watched.text)


@pytest.mark.nightly
async def test_a_filter_of_jobs_is_answered_by_the_database(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("needle", '{"customer": "Ada"}', queue="alpha"), *(job("hay") for _ in range(250)))
    async with watching(database, "7") as watched:
        assert len(watched.cells) == 200
        assert "the newest; there are more" in watched.text
        assert "needle" not in watched.column("kind")
        await watched.press("slash", *"kind:needle", "enter")
        await until(lambda: watched.column("kind") == ["needle"])
        await watched.press("escape", "slash", *"text:ada", "enter")
        await until(lambda: watched.column("kind") == ["needle"])
        await watched.press("escape", "slash", *"status:gone", "enter")
        await until(lambda: "no status is gone: there are blocked, pending" in watched.text)
        await watched.press("escape")
        await until(lambda: len(watched.cells) == 200 and watched.screen.reading.trouble is None)


@pytest.mark.nightly
async def test_a_column_is_measured_once_however_many_cells_change(
    database: str, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(conn, *(job("k" * (1 + n % 20)) for n in range(150)))
    async with watching(database, "7", looks=False, interval=3_600) as watched:
        grid = watched.screen.grid
        await until(lambda: grid.row_count == 156)
        await watched.pilot.pause()
        rows = [line.row for line in grid.lines]
        measured: list[str] = []
        real = Grid.get_column

        def get_column(self: Grid, key: str) -> Any:
            measured.append(key)
            return real(self, key)

        monkeypatch.setattr(Grid, "get_column", get_column)
        for kinds in (["a short one"] * len(rows), ["the longest by far", *["a short one"] * (len(rows) - 1)]):
            measured.clear()
            shown = [row.model_copy(update={"kind": kind}) for row, kind in zip(rows, kinds, strict=True)]
            grid.show(shown, "", datetime.now(UTC) + timedelta(days=400))
            width = max(map(len, kinds))
            await until(lambda: grid.columns[ColumnKey("kind")].content_width == width)  # noqa: B023 - at once
            assert len(measured) <= len(grid.table.columns)


@pytest.mark.nightly
async def test_a_queue_leads_to_its_jobs(database: str, conn: psycopg.Connection[Any]) -> None:
    async with watching(database) as watched:
        await watched.press("enter")
        await until(lambda: watched.screen.grid.table.name == "jobs" and watched.column("queue") == ["beta"] * 3)
        assert "filter queue:beta" in watched.text


async def test_what_is_stored_cannot_move_the_cursor_nor_be_markup(
    database: str, conn: psycopg.Connection[Any]
) -> None:
    worker = Worker(conn, "[bold]k[/x]")
    enqueue(conn, job("[bold]k[/x]"))
    worker.end(worker.claim(), FAILED)
    conn.execute("UPDATE holdfast.job SET queue = E'\\x1b[1m' WHERE queue = 'alpha'")
    async with watching(database, "6") as watched:
        assert watched.column("kind") == ["[bold]k[/x]"]
        await watched.press("1")
        await until(lambda: "\\x1b[1m" in watched.column("queue"))
        await watched.press("7")
        await until(lambda: "[bold]k[/x]" in watched.text)
        await watched.press("r")
        await until(lambda: "Retry job 7, [bold]k[/x]?" in watched.text)
        assert "\x1b" not in watched.text
