"""Old rows leave for the archive: moved, exported to the object store, verified, found and restored."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from obstore.store import S3Store

from tenders.tests.fleet import EXAMPLE, Ledger
from tests.kit.commands import Output, holdfast
from tests.kit.statement import CYCLES, Document
from tools.seaweedfs import REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.seaweedfs import SeaweedFS

doc = Document(CYCLES)

TABLES = ("licitaciones", "notification_events", "notification_deliveries", "delivery_runs")
# Tenders of 14 months, of 11 months and of today, each with an event and a delivery. Deliveries of 100 days have ended.
FILL = """
WITH ages AS (SELECT n, now() - make_interval(months => CASE WHEN n <= 30 THEN 14 WHEN n <= 50 THEN 11 ELSE 0 END) AS at
    FROM generate_series(1, 60) AS n),
registered AS (INSERT INTO licitacion_registry (codigo_externo) SELECT 'L-' || n FROM ages RETURNING codigo_externo),
phone AS (INSERT INTO device_installations (push_token, platform, secret_sha256) VALUES ('t', 'ios', '\\x00')
    RETURNING installation_id),
tenders AS (INSERT INTO licitaciones (codigo_externo, nombre, monto, created_at)
    SELECT 'L-' || n, 'Reparación de caminos nº ' || n, n * 1000000, at FROM ages RETURNING id, created_at),
events AS (INSERT INTO notification_events (type, licitacion_id, created_at)
    SELECT 'nueva_licitacion', id, created_at FROM tenders RETURNING id, created_at)
INSERT INTO notification_deliveries (notification_event_id, installation_id, provider, status, created_at, completed_at)
SELECT e.id, installation_id, 'expo', 'ok', e.created_at, e.created_at FROM events e, phone
"""
RUNS = """
INSERT INTO delivery_runs (cycle, started_at, finished_at, counts)
SELECT 'dispatch', now() - (10 * n + 5) * interval '1 day', now(), '{"sent": 1}' FROM generate_series(0, 19) AS n
"""


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(FILL)
        conn.execute(RUNS)
        for table in TABLES:
            conn.execute(f"CREATE TABLE {table}_before AS SELECT * FROM {table}")
        yield Ledger(conn)


@pytest.fixture
def folder() -> str:
    """A folder of the test's own in the bucket."""
    return secrets.token_hex(6)


@pytest.fixture
def run(database: str, objects: SeaweedFS, folder: str) -> Callable[..., Output]:
    """Run a command with the folder in the bucket."""
    variables = {
        "ARCHIVE_BUCKET": f"tenders/{folder}",
        "ARCHIVE_REGION": REGION,
        "ARCHIVE_ENDPOINT": objects.url,
        "CHILECOMPRA_API_URL": "http://127.0.0.1:1",
        "CHILECOMPRA_PAGE_URL": "http://127.0.0.1:1",
        "EXPO_URL": "http://127.0.0.1:1",
        **objects.environment,
    }

    def run(*arguments: str, status: int = 0, **more: str) -> Output:
        output = holdfast(*arguments, database=database, cwd=EXAMPLE, **(variables | more))
        assert output.status == status, output
        return output

    return run


def ticked(run: Callable[..., Output], runner: str) -> dict[str, int]:
    """Let a cycle of the night run now, and return its counts."""
    run("runners", "trigger", runner)
    output = run("tick", "tenders.app:app", "--json", HOLDFAST_TICK_RUNNERS=runner)
    found = output.json["runners"][0]
    counts: dict[str, int] = found["counts"]
    return counts


def differences(ledger: Ledger, restored: str, table: str) -> int:
    """Return how many rows of a restored month differ from those that were there."""
    one = f"SELECT * FROM {restored}"
    other = f"SELECT * FROM {table}_before WHERE id IN (SELECT id FROM {restored})"
    return int(ledger.value(f"SELECT count(*) FROM (({one} EXCEPT {other}) UNION ALL ({other} EXCEPT {one})) AS x"))


@pytest.mark.nightly
@doc.states("cleanup moves tenders older than 12 months to archive.licitaciones")
@doc.states("cleanup moves deliveries that ended more than 90 days ago to archive.notification_deliveries")
@doc.states("archive-export writes archived rows to Parquet in an S3-compatible store")
@doc.states("archive-export verifies the checksum after the upload")
def test_old_rows_are_moved_exported_verified_found_and_restored(
    ledger: Ledger, run: Callable[..., Output], objects: SeaweedFS, folder: str
) -> None:
    # A first tick stores the schedules: cleanup at 03:17 and archiveExport at 03:47, in Santiago.
    run("tick", "tenders.app:app", HOLDFAST_TICK_RUNNERS="cleanup,archiveExport")
    stored = "SELECT json_object_agg(name, schedule) FROM holdfast.schedule WHERE name IN ('cleanup', 'archiveExport')"
    assert ledger.value(stored) == {
        "cleanup": "17 3 * * * America/Santiago",
        "archiveExport": "47 3 * * * America/Santiago",
    }

    # 12 months for tenders, 90 days for deliveries that have ended. The registry keeps every code.
    assert ticked(run, "cleanup")["rows_moved"] == 30 + 30 + 50 + 11
    assert [ledger.value(f"SELECT count(*) FROM {table}") for table in TABLES] == [30, 30, 10, 9]
    assert [ledger.value(f"SELECT count(*) FROM archive.{table}") for table in TABLES] == [30, 30, 50, 11]
    assert ledger.value("SELECT count(*) FROM licitacion_registry") == 60
    assert ledger.value("SELECT rows_archived FROM worker_runs WHERE worker_name = 'cleanup'") == 121

    for table, at in (("licitaciones", "created_at"), ("notification_deliveries", "completed_at")):
        month = ledger.value(f"SELECT date_trunc('month', min({at}))::date::text FROM {table}_before")
        run("archive", "export", f"public.{table}", "--day", month, "--app", "tenders.app:app")
        assert verified(ledger, table) == 30
        run("archive", "restore", f"public.{table}", month, "--into", f"public.old_{table}")
        assert ledger.value(f"SELECT count(*) FROM old_{table}") == 30
        assert differences(ledger, f"old_{table}", table) == 0
    assert "2 files read" in (output := run("archive", "verify", "--all").out)
    assert "all as recorded" in output
    query = 'select count(*) as n, sum(monto) as total from "public.licitaciones"'
    assert run("archive", "query", "--sql", query).out.splitlines()[1].split() == ["30", "465000000"]
    _spoil(objects, ledger.value("SELECT min(object) FROM holdfast.archive_exports"), folder)
    refused = run("archive", "verify", "--all", status=1)
    assert "another checksum" in refused.out + refused.err


def _spoil(objects: SeaweedFS, name: str, folder: str) -> None:
    """Change a byte of a file in the bucket."""
    store = S3Store(
        "tenders",
        prefix=folder,
        config={
            "endpoint": objects.url,
            "access_key_id": objects.environment["AWS_ACCESS_KEY_ID"],
            "secret_access_key": objects.environment["AWS_SECRET_ACCESS_KEY"],
        },
        client_options={"allow_http": True},
    )
    whole = bytes(store.get(name).bytes())
    store.put(name, whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])


def test_worker_runs_has_the_deliveries_without_a_job(ledger: Ledger, run: Callable[..., Output]) -> None:
    ledger.conn.execute(
        "UPDATE notification_deliveries SET status = 'pending', completed_at = NULL, chain_id = 7, "
        "updated_at = now() - interval '2 days' WHERE id <= 3"
    )
    run("tick", "tenders.app:app", HOLDFAST_TICK_RUNNERS="strandedDeliveries")
    assert ticked(run, "strandedDeliveries") == {"failed": 3}
    query = "SELECT notifications_failed FROM worker_runs WHERE worker_name = 'strandedDeliveries'"
    assert ledger.value(query) == 3


@pytest.mark.prove
def test_the_cycles_of_the_night_archive_everything(ledger: Ledger, run: Callable[..., Output]) -> None:
    """Every export is a process of its own, and this has about twenty."""
    run("tick", "tenders.app:app", HOLDFAST_TICK_RUNNERS="cleanup,archiveExport")
    ticked(run, "cleanup")
    assert ticked(run, "archiveExport")["rows_exported"] >= 30 + 30 + 50
    assert [verified(ledger, table) for table in TABLES[:3]] == [30, 30, 50]
    assert "all as recorded" in run("archive", "verify", "--all").out


def verified(ledger: Ledger, table: str) -> int:
    """Return how many rows of a table are in files that were read back."""
    exports = "SELECT coalesce(sum(rows), 0) FROM holdfast.archive_exports WHERE state = 'verified'"
    return int(ledger.value(f"{exports} AND source = 'public.{table}'"))
