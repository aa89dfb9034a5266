"""The runners `cleanup` and `archiveExport` in a worker: singletons, with a crontab line and counts in `run`."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast._app import archiving
from holdfast._app.app import application_of
from holdfast._archive import export
from holdfast._archive.runners import ArchiveRunners
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._model.settings import SettingsError
from holdfast._store.schedule import trigger_schedule
from tests.kit.archive import FAMILIES
from tests.kit.fleet import alone, fast
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._engine.application import Application
    from tests.kit.archive import History


def schedules(history: History) -> dict[str, str]:
    names = "'cleanup', 'archiveExport'"
    found = history.conn.execute(f"SELECT name, schedule FROM holdfast.schedule WHERE name IN ({names})".encode())
    return dict(found.fetchall())


def last_run(history: History, runner: str) -> Any:
    found = history.conn.execute("SELECT outcome, counts, error FROM holdfast.run WHERE runner = %s", [runner])
    return found.fetchone()


async def test_a_worker_archives(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests would have all of the processor.
    monkeypatch.setattr(archiving, "ArchiveRunners", partial(ArchiveRunners, background=False))
    history.jobs_of(100, 25)
    place = history.location
    options: dict[str, Any] = {
        "archive_bucket": place.bucket,
        "archive_region": place.region,
        "archive_endpoint": place.endpoint,
        "cleanup_cron": "5 4 * * *",
        "archive_export_cron": "6 4 * * 1 America/Santiago",
    }
    first, second = Holdfast(history.url), Holdfast(history.url)
    async with first.worker(**QUICK, **options), second.worker(**QUICK, **options):
        await until(lambda: len(schedules(history)) == 2)
        assert schedules(history) == {"cleanup": "5 4 * * * UTC", "archiveExport": "6 4 * * 1 America/Santiago"}
        run_sync(history.conn, trigger_schedule("archiveExport"))
        await until(lambda: (last_run(history, "archiveExport") or [None])[0] is not None, 90)
        outcome, counts, error = last_run(history, "archiveExport")
        assert (outcome, error) == ("completed", None)
        # A worker makes yesterday's partitions when it starts, of every family. In the first hour of a day, yesterday
        # is not closed yet.
        exported = [export for family in FAMILIES for export in await history.exports(family)]
        assert counts["periods_exported"] == len(exported) > 0
        assert counts["rows_exported"] == 25
        assert counts["bytes_exported"] > 0
        run_sync(history.conn, trigger_schedule("cleanup"))
        await until(lambda: (last_run(history, "cleanup") or [None])[0] is not None)
        assert last_run(history, "cleanup") == ("completed", {"periods_dropped": 1}, None)
    assert ("dropped", 25) in [(export.state, export.rows) for export in await history.exports()]


@pytest.fixture
def one_shot(history: History, monkeypatch: pytest.MonkeyPatch) -> Application:
    """A tick that exports the history of jobs."""
    monkeypatch.setattr(archiving, "ArchiveRunners", partial(ArchiveRunners, background=False))
    history.conn.execute("UPDATE holdfast.retention SET archived = false WHERE family <> 'job_history'")
    place = history.location
    settings = fast(
        archive_bucket=place.bucket,
        archive_region=place.region,
        archive_endpoint=place.endpoint,
        tick_runners=alone("cleanup", "archiveExport"),
        tick_runner_max=timedelta(milliseconds=1),
    )
    return application_of(Holdfast(history.url), settings)


async def test_an_export_in_one_shot_mode_has_the_time_of_the_whole_tick(
    history: History, one_shot: Application
) -> None:
    history.jobs_of(100, 25)
    assert {ticked.outcome for ticked in (await run_tick(one_shot)).runners} == {"skipped"}
    run_sync(history.conn, trigger_schedule("archiveExport"))
    ticked = (await run_tick(one_shot)).runners[-1]
    assert (ticked.runner, ticked.outcome, ticked.counts["rows_exported"]) == ("archiveExport", "completed", 25)


async def test_a_day_that_cannot_be_exported_stops_no_other(
    history: History, one_shot: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days_ago in (100, 101, 102):
        history.jobs_of(days_ago, 25)
    begun: list[str] = []

    def poison(step: str) -> None:
        begun.append(step)
        if begun.count("uploaded") == 1 and step == "uploaded":
            raise RuntimeError("this day cannot be exported")

    monkeypatch.setattr(export, "on_step", poison)
    await run_tick(one_shot)
    run_sync(history.conn, trigger_schedule("archiveExport"))
    ticked = (await run_tick(one_shot)).runners[-1]
    assert (ticked.runner, ticked.outcome) == ("archiveExport", "failed")
    assert [each.error is None for each in await history.exports() if each.state != "verified"] == [False]
    assert ticked.counts["periods_exported"] == 2


async def test_without_a_bucket_there_is_no_archive(history: History) -> None:
    app = Holdfast(history.url)
    async with app.worker(**QUICK):
        await until(lambda: history.value("SELECT count(*) FROM holdfast.schedule WHERE name = 'maintenance'"))
        assert schedules(history) == {}


def test_a_wrong_schedule_is_named(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEANUP_CRON", "17 3 * * * America/Santigo")
    with pytest.raises(SettingsError, match="CLEANUP_CRON: 'America/Santigo' is not a time zone known here"):
        Holdfast(database).worker(archive_bucket="b")
    monkeypatch.undo()
    with pytest.raises(SettingsError, match=r"archive_export_cron \(argument\): .* has 5 fields"):
        Holdfast(database).worker(archive_bucket="b", archive_export_cron="47 3")


@pytest.mark.parametrize("library", ["obstore", "pyarrow"])
def test_a_missing_library_is_named(database: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"the archive needs {library}, which is not installed: pip install"):
        Holdfast(database).worker(archive_bucket="b")
