"""Every value comes back as it was: text, JSON letter for letter, numbers, arrays and nulls."""

from __future__ import annotations

import math
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast._archive.location import ArchiveError
from holdfast._archive.restore import TargetTable, restore
from holdfast._model.errors import InvalidJob
from holdfast._store.archive import FAMILIES

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History

TEXTS = [
    "",
    "null",
    "NULL",
    "\\N",
    "\\.",
    "a\n\\.\nb",
    "NaN",
    "true",
    "{}",
    "a,b;c\td",
    'quote " and \'\' and ""',
    "back\\slash \\n \\\\",
    "line\nbreak\r\nand\rreturn\n",
    " spaces ",
    "ünïcødé ✓ 漢字 🙂 \u2028 \u00a0",
    "x" * 100_000,
]
DOCUMENTS = [
    "{}",
    "[]",
    "null",
    '""',
    '{"a" :  1 , "a":2.50, "b":1e400}',
    '{"text": "line\\nbreak \\"quoted\\" back\\\\slash, comma \\u00e9 é"}',
    "[" * 500 + "]" * 500,
    '{"deep":' * 300 + "1" + "}" * 300,
    ' { "spaces" : [ 1,2 ] } \n',
]
BIG = 10 * 1024 * 1024


def fill(history: History, day: str) -> None:
    """Write odd values into every family."""
    jobs = "(id, created_at, available_at, finished_at, status, attempt, priority, queue, kind, "
    times = f"nextval('holdfast.job_id_seq'), '{day} 10:00:00.000001+00', '{day}', '{day} 23:59:59.999999+00'"
    for table, status in (("job_history", "completed"), ("job_failed", "failed")):
        for text in TEXTS:
            history.conn.execute(
                f"INSERT INTO holdfast.{table} {jobs} order_key, last_error, blockers, run_anyway) "
                f"VALUES ({times}, '{status}', -1, 32767, %s, %s, %s, %s, '{{1,NULL,9223372036854775807}}', true)",
                [text, text, text, text],
            )
        for document in DOCUMENTS:
            history.conn.execute(
                f"INSERT INTO holdfast.{table} {jobs} payload, headers, result, blockers, chain_id) "
                f"VALUES ({times}, '{status}', 1, 5, 'q', 'k', %s, %s, %s, '{{}}', 9223372036854775807)",
                [document] * 3,
            )
    history.conn.execute(
        f"INSERT INTO holdfast.job_history {jobs} payload) "
        f"VALUES ({times}, 'completed', 1, 5, 'q', 'k', to_json(repeat('xyz,\"', {BIG // 5})))"
    )
    history.conn.execute(
        f"INSERT INTO holdfast.job_history {jobs} payload) VALUES ({times}, 'cancelled', 1, 5, '', '', NULL)"
    )
    for text in TEXTS:
        history.conn.execute(
            "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt, error_code, error, traceback) "
            f"VALUES (7, '{day} 00:00+00', 'lost', 1, %s, %s, NULL)",
            [text, text],
        )
        history.conn.execute(
            "INSERT INTO holdfast.delivery (answered_at, event_id, subscription_id, attempt, answer) "
            f"VALUES ('{day} 12:00+00', 1, 2, 3, %s)",
            [text],
        )
        history.conn.execute(
            "INSERT INTO holdfast.run (started_at, finished_at, runner, outcome, counts, error) "
            f"VALUES ('{day} 12:00+00', now(), 'r', %s, NULL, %s)",
            [text, text],
        )
    for document in DOCUMENTS:
        history.conn.execute(
            "INSERT INTO holdfast.event (id, published_at, xid, shard, topic, key, payload, headers) VALUES "
            f"(nextval('holdfast.event_id_seq'), '{day} 12:00+00', '18446744073709551615', 63, 't', 'ü', %s, %s)",
            [document, document if document.startswith("{") else None],
        )


async def test_every_family_comes_back_row_for_row(history: History, bucket: ObjectStore) -> None:
    day = history.day(100)
    fill(history, day)
    for family in FAMILIES:
        history.remember(family)
    assert (await history.export())["periods_exported"] == len(FAMILIES)
    assert await history.cleanup() == {"periods_dropped": len(FAMILIES)}
    for family in FAMILIES:
        assert history.value(f"SELECT to_regclass('holdfast.{family}_{day.replace('-', '')}')") is None
        [export] = await history.exports(family)
        rows = history.value(f"SELECT count(*) FROM public.{family}_before")
        assert (export.rows, restore(history.conn, bucket, export, TargetTable("archive", family))) == (rows, rows)
        assert history.differences(f"public.{family}_before", f"archive.{family}") == 0, family
    # Rows that the record does not have are not loaded.
    [export] = await history.exports("run")
    with pytest.raises(ArchiveError, match="rows were loaded, and the record says 3"):
        restore(history.conn, bucket, export._replace(rows=3), TargetTable("archive", "other"))
    assert history.value("SELECT to_regclass('archive.other')") is None
    assert export.starts_on == date.fromisoformat(day)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_does_not_have_is_refused_at_enqueue(database: str, number: float) -> None:
    app = Holdfast(database)

    @app.job("measure")
    async def measure(job: object, value: float, more: Any = None) -> None: ...

    with pytest.raises(InvalidJob, match="measure: value is "):
        measure.new(number)
    with pytest.raises(InvalidJob, match=r"measure: more\.0 is "):
        measure.new(1.0, [number])
