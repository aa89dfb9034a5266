"""`holdfast archive` and `holdfast retention`, with a real object store."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._distribution import missing
from holdfast._drivers import run_sync
from holdfast._store.archive import Period, record_export_error, report_export, start_export
from tests.cli.archiving import WRONG, archive, command, flat
from tests.cli.auditing import ME, audited
from tests.kit.archive_tables import TENDERS
from tests.kit.clock import set_back
from tests.kit.commands import PATIENCE, Output, environment, holdfast

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.archive import History

FAMILIES = ("attempt", "delivery", "event", "job_failed", "job_history", "run")
RETENTION = "completed 14 days, failed 90 days, events 7 days, runs 30 days"


@pytest.mark.nightly
def test_no_bucket(database: str) -> None:
    output = holdfast("archive", database=database)
    assert (output.status, output.err) == (0, "")
    assert output.out.splitlines() == [
        "archive: off, no bucket is set (HOLDFAST_ARCHIVE_BUCKET)",
        f"retention: {RETENTION}. Days are dropped then, and not archived.",
        "Nothing is archived yet.",
    ]
    assert holdfast("archive", "status", database=database).out == output.out
    reported = holdfast("archive", "--json", database=database).json
    assert (reported["bucket"], reported["archived"], reported["sources"], reported["unfinished"]) == (
        None,
        False,
        [],
        [],
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments", [["export"], ["verify"], ["restore", "run", "2026-03-01"], ["query", "--job", "1"]], ids=" ".join
)
def test_a_command_that_needs_a_bucket(database: str, arguments: list[str]) -> None:
    output = holdfast("archive", *arguments, database=database)
    assert (output.status, output.out) == (1, "")
    assert output.err == (
        "holdfast archive: the archive is off, no bucket is set (HOLDFAST_ARCHIVE_BUCKET): set it to a bucket's name, "
        "or an address such as s3://acme/history or file:///var/lib/history\n"
    )


def test_export_then_status(history: History) -> None:
    day = history.day(100, jobs=1000)
    output = archive(history, "export")
    assert output.status == 0, output.err
    assert [line.split()[:2] for line in output.out.splitlines()[1:7]] == [[family, day] for family in FAMILIES]
    assert f"job_history {day} 1,000" in flat(output.out)
    assert "\n6 periods with 1,000 rows, " in output.out
    assert output.out.endswith(f"archived in s3://{history.location.bucket}\n")
    assert audited(history.conn) == [(ME, "archive.export", None, None)]
    status = archive(history)
    assert f"archive: s3://{history.location.bucket}\n" in status.out
    assert "runs 30 days, and until they are archived." in status.out
    assert "job_history 1 1,000" in flat(status.out)
    assert f"{day} {day} 0 1 0 " in flat(status.out)
    reported = archive(history, "status", "--json").json
    [total] = [total for total in reported["sources"] if total["source"] == "job_history"]
    assert (total["rows"], total["first_day"], total["last_day"], total["verified"]) == (1000, day, day, 1)
    assert reported["archived"] is True
    assert archive(history, "export").out == "Nothing to export: every closed day is archived.\n"


@pytest.mark.nightly
def test_the_first_export_keeps_days_until_they_are_archived(history: History) -> None:
    history.conn.execute("SELECT holdfast.set_archived(false)")
    history.day(100, jobs=1)
    output = archive(history, "export", "job_history")
    assert output.status == 0, output.err
    assert output.out.startswith(
        "From now on days are kept until they are archived; `holdfast archive disable` ends that."
    )
    assert history.value("SELECT bool_and(archived) FROM holdfast.retention WHERE family = 'job_history'")


@pytest.mark.nightly
def test_export_of_one_source_and_one_day(history: History) -> None:
    first, second = history.day(100, jobs=2), history.day(99, jobs=3)
    reported = archive(history, "export", "job_history", "--day", second, "--json").json
    assert [(one["source"], one["starts_on"], one["rows"], one["result"]) for one in reported] == [
        ("job_history", second, 3, "verified")
    ]
    output = archive(history, "export", "job_history", "--day", second)
    assert output == (0, f"Nothing to export: job_history {second} is verified.\n", "")
    assert {one["starts_on"] for one in archive(history, "export", "--day", first, "--json").json} == {first}
    output = archive(history, "export", "job_history", "--day", "2020-01-01")
    assert output.status == 1
    assert "job_history has no closed period of 2020-01-01: a day can be exported" in output.err


@pytest.mark.nightly
def test_a_failed_export_is_named_and_shown_by_status(history: History) -> None:
    day = history.day(100, jobs=1)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    output = archive(history, "export", "job_history", HOLDFAST_ARCHIVE_ENDPOINT=nowhere)
    assert output.status == 1
    assert "failed: " in output.out
    assert output.out.endswith("1 export failed, and nothing of these periods is dropped: run it again.\n")
    status = archive(history).out
    assert f"job_history {day} waiting" in flat(status)
    assert "127.0.0.1" in status
    assert archive(history, "export", "job_history").status == 0


@pytest.mark.nightly
async def test_a_period_with_fewer_rows_than_its_file_is_shown_and_replaced_when_it_is_named(history: History) -> None:
    day = history.jobs_of(100, 10)
    await history.export()
    history.conn.execute("DELETE FROM holdfast.job_history WHERE id IN (SELECT id FROM holdfast.job_history LIMIT 3)")
    assert await history.cleanup() == {"periods_incomplete": 1}
    status = archive(history)
    assert "\nKept until you decide, since the database has fewer rows than the file:\n" in status.out
    assert f"job_history {day} 7 rows are in the day, and 10 in its file: both are kept" in flat(status.out)
    assert "Not finished" not in status.out
    reported = archive(history, "status", "--json").json
    assert ([one["source"] for one in reported["incomplete"]], reported["unfinished"]) == (["job_history"], [])
    output = archive(history, "export", "job_history")
    assert output.out == (
        "Nothing to export: periods with fewer rows than their files are kept: see `holdfast archive status`.\n"
    )
    output = archive(history, "export", "job_history", "--day", day)
    assert output.status == 0, output.err
    assert output.out.startswith(f"The file of job_history {day} is replaced by one with fewer rows.\n")
    assert f"job_history {day} 7" in flat(output.out)
    assert "Kept until" not in archive(history).out
    assert await history.cleanup() == {"periods_dropped": 1}


@pytest.mark.nightly
def test_wrong_credentials(history: History) -> None:
    history.day(100, jobs=1)
    output = archive(history, "export", "job_history", **WRONG)
    assert output.status == 1
    assert "credentials" in output.out or "403 Forbidden" in output.out
    assert "hush" not in output.out + output.err


@pytest.mark.nightly
def test_status_shows_the_progress_of_an_export(history: History) -> None:
    day = date.fromisoformat(history.day(100, jobs=1))
    period = Period("job_history", day, day + timedelta(days=1), 1, "holdfast.job_history", "finished_at", 4000)
    token = run_sync(history.conn, start_export(period))
    assert token is not None
    run_sync(history.conn, report_export(period, token, rows_done=1000))
    assert f"job_history {day} exporting now 1,000 of about 4,000 rows, 25%" in flat(archive(history).out)
    taken = archive(history, "export", "job_history")
    assert taken == (0, f"Nothing to export: another process exports job_history {day}.\n", "")
    run_sync(history.conn, record_export_error(period, token, "the disk is full", incomplete=False))
    shown = flat(archive(history).out)
    assert f"job_history {day} waiting" in shown
    assert "rows, 25%" not in shown
    assert "the disk is full" in shown
    output = archive(history, "restore", "job_history", str(day))
    assert output.status == 1
    assert output.err.endswith(
        f"job_history of {day} is not archived yet, its export is exporting: the disk is full. Try again later\n"
    )


@pytest.mark.nightly
async def test_export_of_the_applications_own_tables(tenders: History, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from holdfast import Holdfast\nfrom holdfast.archive import Archive\n"
        f"app = Holdfast(archives=[Archive({TENDERS.table!r}, {TENDERS.at!r}, hot={TENDERS.hot!r})])\n"
    )
    tenders.jobs_of(100, 3)
    assert await tenders.cleanup(TENDERS) == {"rows_moved": 20}
    output = archive(tenders, "export", "public.tenders")
    assert output.status == 2
    assert "for a table of the application give --app module:attribute" in output.err
    reported = archive(
        tenders, "export", "public.tenders", "--app", "shop:app", "--day", "2024-01-31", "--json", cwd=tmp_path
    )
    assert [(one["source"], one["starts_on"], one["rows"], one["result"]) for one in reported.json] == [
        ("public.tenders", "2024-01-01", 10, "verified")
    ]
    output = archive(tenders, "export", "--app", "shop:app", cwd=tmp_path)
    assert output.status == 0, output.err
    assert "public.tenders 2024-02 10" in flat(output.out)
    assert "\n2 periods with 13 rows, " in output.out
    assert archive(tenders, "restore", "public.tenders", "2024-02-09").out == (
        "public.tenders 2024-02: 10 rows in the table archive.public_tenders_20240201\n"
    )
    output = archive(tenders, "export", "--app", "shop:nothing", cwd=tmp_path)
    assert output.status in {1, 2}
    assert "shop" in output.err


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "missing_libraries", "extra"),
    [
        (["export"], ["obstore"], "archive"),
        (["verify"], ["pyarrow"], "archive"),
        (["restore", "run", "2026-03-14"], ["obstore", "pyarrow"], "archive"),
        (["query", "--job", "7"], ["obstore"], "archive"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_missing_library_is_named_with_its_extra(
    database: str, tmp_path: Path, arguments: list[str], missing_libraries: list[str], extra: str
) -> None:
    without = f"import sys; sys.modules |= dict.fromkeys({missing_libraries!r})"
    words = ["archive", *arguments]
    done = subprocess.run(  # noqa: S603 - the command under test
        [sys.executable, "-c", f"{without}; from holdfast._cli import main; sys.exit(main({words!r}))"],
        env=environment(database, HOLDFAST_ARCHIVE_BUCKET=tmp_path.as_uri()),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"holdfast archive: {missing('this command', extra, *missing_libraries)}\n"


@pytest.mark.nightly
def test_disable(history: History) -> None:
    output = archive(history, "disable")
    assert output.status == 2
    assert "give --yes (No longer keep days until they are archived?" in output.err
    output = archive(history, "disable", "--yes")
    assert (output.status, output.err) == (0, "")
    assert output.out.startswith("Days are no longer kept until they are archived. Files in the bucket stay.\n")
    assert history.value("SELECT count(*) FROM holdfast.retention WHERE archived") == 0
    assert audited(history.conn) == [(ME, "archive.disable", None, None)]


@pytest.mark.nightly
def test_status_without_a_bucket_of_a_database_that_keeps_days(history: History) -> None:
    output = holdfast("archive", database=history.url)
    assert "which nothing does without a bucket: set HOLDFAST_ARCHIVE_BUCKET, or give the archive up" in output.out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["export", "job_histori"], 2, "SOURCE: nothing is archived as job_histori: did you mean job_history?"),
        (["verify", "orders"], 2, "SOURCE: nothing is archived as orders: there are job_history, job_failed, "),
        (["restore", "run", "2020-01-01"], 1, "run of 2020-01-01 is not archived: see `holdfast archive status`"),
        (["verify", "--day", "2020-01-01"], 1, "no file of 2020-01-01 is archived: see `holdfast archive status`"),
        (["restore", "run", "march"], 2, "DAY: 'march' is not a day: write YYYY-MM-DD, e.g. 2026-03-14"),
        (["query"], 2, "--job or --event is missing: give one of them"),
        (["query", "--job", "x"], 2, "--job: 'x' is not an id: expected a number from 1 to 9223372036854775807"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(history: History, arguments: list[str], status: int, message: str) -> None:
    output = archive(history, *arguments)
    assert (output.status, output.out) == (status, "")
    assert message in output.err


@pytest.mark.nightly
def test_a_folder_as_the_bucket(history: History, tmp_path: Path) -> None:
    day = history.day(100, jobs=3)
    address = (tmp_path / "history").as_uri()
    folder = {"HOLDFAST_ARCHIVE_BUCKET": address}
    assert command(history, "archive", "export", **folder).status == 0
    output = command(history, "archive", "restore", "job_history", day, **folder)
    assert output.out.startswith(f"job_history {day}: 3 rows in the table archive.job_history_")
    assert command(history, "archive", "verify", "--all", **folder).status == 0


def findings(output: Output) -> list[Any]:
    return [one for one in output.json["findings"] if one["subject"] == "archive"]


@pytest.mark.nightly
def test_check_says_whether_the_archive_is_on(database: str, history: History, tmp_path: Path) -> None:
    off, kept = findings(holdfast("check", "--json", database=history.url))
    assert (off["verdict"], off["message"]) == ("ok", "off, no bucket is set (HOLDFAST_ARCHIVE_BUCKET)")
    assert kept["verdict"] == "note"
    assert kept["message"].startswith("days are kept until they are archived, and no bucket is set: ")
    folder = {"HOLDFAST_ARCHIVE_BUCKET": tmp_path.as_uri()}
    [on] = findings(command(history, "check", "--json", **folder))
    assert (on["verdict"], on["message"]) == ("ok", f"{tmp_path.as_uri()}: the bucket answers")
    endpoint = {"HOLDFAST_ARCHIVE_REGION": "us-east-1", "HOLDFAST_ARCHIVE_ENDPOINT": history.location.endpoint or ""}
    named = {"HOLDFAST_ARCHIVE_BUCKET": history.location.bucket} | endpoint
    [on] = findings(command(history, "check", "--json", **named))
    assert (on["verdict"], on["message"]) == ("ok", f"s3://{history.location.bucket}: the bucket answers")
    output = command(history, "check", "--json", **(named | WRONG))
    assert output.status == 1
    assert findings(output)[0]["verdict"] == "wrong"
    assert "hush" not in output.out


def test_a_clock_that_leapt_is_confirmed_by_a_person(history: History) -> None:
    set_back(history.conn, timedelta(days=-40))
    assert holdfast("retention", database=history.url).out.endswith("If it is right: holdfast retention confirm\n")
    assert holdfast("retention", "confirm", database=history.url).out == "rows expire again by the server's clock\n"
    assert "note" not in holdfast("retention", database=history.url).out
    assert "not in doubt" in holdfast("retention", "confirm", database=history.url).out
    assert history.conn.execute("SELECT who, action FROM holdfast.audit").fetchall() == [(ME, "retention.confirm")]


def test_retention(history: History) -> None:
    output = holdfast("retention", database=history.url)
    assert (output.status, output.err) == (0, "")
    assert output.out == holdfast("retention", "show", database=history.url).out
    assert "completed job_history 14 yes" in flat(output.out)
    output = holdfast("retention", "set", "completed=90", "failed=365", database=history.url)
    assert "completed job_history 90 yes" in flat(output.out)
    kept = {line["family"]: line["days"] for line in holdfast("retention", "--json", database=history.url).json}
    assert (kept["job_history"], kept["job_failed"], kept["attempt"], kept["event"]) == (90, 365, 365, 7)
    [entry] = history.conn.execute("SELECT who, action, detail FROM holdfast.audit").fetchall()
    assert entry == (ME, "retention.set", {"completed": 90, "failed": 365})


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("complete=9", "NAME=DAYS: 'complete=9': write completed=90; did you mean completed?"),
        ("completed=1", "NAME=DAYS: 'completed=1': expected 2 to 36500 days, such as completed=90"),
        ("completed", "NAME=DAYS: 'completed': expected 2 to 36500 days, such as completed=90"),
    ],
)
def test_a_wrong_retention(database: str, given: str, message: str) -> None:
    assert holdfast("retention", "set", given, database=database) == (2, "", f"holdfast retention set: {message}\n")
