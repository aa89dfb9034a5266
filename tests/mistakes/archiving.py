"""Mistakes in the commands of the archive and of retention."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

_BUCKET = "HOLDFAST_ARCHIVE_BUCKET=file:///tmp/history"

ARCHIVING = Area(
    "The archive and retention",
    "Commands that read or write the files of the archive, and how long history is kept.",
    (
        Mistake(
            "No bucket",
            "holdfast archive export",
            "holdfast archive: the archive is off, no bucket is set (HOLDFAST_ARCHIVE_BUCKET): set it to a bucket's name, or an address such as s3://acme/history or file:///var/lib/history",
        ),
        Mistake(
            "An address that is not one of an object store",
            "HOLDFAST_ARCHIVE_BUCKET=ftp://acme/history holdfast archive status",
            "holdfast archive: HOLDFAST_ARCHIVE_BUCKET: ftp:// is not known: use a bucket's name, or s3://, gs://, az://, file://",
        ),
        Mistake(
            "A source that is not archived",
            f"{_BUCKET} holdfast archive restore job_histori 2026-03-14",
            "holdfast archive: SOURCE: nothing is archived as job_histori: did you mean job_history?",
        ),
        Mistake(
            "A table of the application without the application",
            f"{_BUCKET} holdfast archive export public.orders",
            "holdfast archive: SOURCE: nothing is archived as public.orders: there are job_history, job_failed, attempt, event, delivery, run; for a table of the application give --app module:attribute",
        ),
        Mistake(
            "A day that is not archived",
            f"{_BUCKET} holdfast archive restore job_history 2026-03-14",
            "holdfast archive: job_history of 2026-03-14 is not archived: see `holdfast archive status`",
        ),
        Mistake(
            "A day that is a month",
            f"{_BUCKET} holdfast archive restore job_history 2026-03",
            "holdfast archive restore: DAY: '2026-03' is not a day: write YYYY-MM-DD, e.g. 2026-03-14",
        ),
        Mistake(
            "A job that is in no file",
            f"{_BUCKET} holdfast archive query --job 81273",
            "holdfast archive: job 81273 is in no file of these days: it is not archived yet, was deleted before, or never existed. See `holdfast archive status`",
        ),
        Mistake(
            "Searching for nothing",
            "holdfast archive query --since 2026-03-01",
            "holdfast archive query: --job or --event is missing: give one of them",
        ),
        Mistake(
            "Giving the archive up without a confirmation",
            "holdfast archive disable",
            "holdfast archive: this cannot be undone: give --yes (No longer keep days until they are archived? Days past their retention are dropped without a copy.)",
        ),
        Mistake(
            "A retention that does not exist",
            "holdfast retention set complete=90",
            "holdfast retention set: NAME=DAYS: 'complete=90': write completed=90; did you mean completed?",
        ),
        Mistake(
            "A retention of one day",
            "holdfast retention set completed=1",
            "holdfast retention set: NAME=DAYS: 'completed=1': expected 2 to 36500 days, such as completed=90",
        ),
    ),
)
