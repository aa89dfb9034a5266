from __future__ import annotations

import argparse
import io
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._cli import import_outbox, progress
from holdfast._cli.importing import Tally
from tests.cli.auditing import ME, audited
from tests.cli.outbox import (
    SHIP,
    SOURCE,
    TABLE,
    add,
    await_batch,
    exactly,
    hold_batches,
    imported,
    jobs,
    make_outbox,
    release_batch,
    start,
    statuses,
)
from tests.kit.commands import PATIENCE, holdfast
from tests.kit.workers import number

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.cli.outbox import Connect
    from tests.kit.commands import Output


def run(database: str, *arguments: str, cwd: Path | None = None) -> Output:
    return holdfast("import-outbox", *arguments, database=database, cwd=cwd)


def placed(conn: psycopg.Connection[Any], payload: str, *, type_: str = "order.placed", key: str | None = None) -> None:
    conn.execute(
        "INSERT INTO event_outbox (event_type, payload, aggregate_id) VALUES (%s, %s, %s)", [type_, payload, key]
    )


def test_a_preview_shows_what_would_be_made_and_writes_nothing(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 2)
    placed(conn, '{"password": "hush"}')
    placed(conn, "{}", type_="order.lost")
    output = run(database, *SOURCE, *SHIP, "--key", "aggregate_id")
    assert output.status == 1
    assert output.out == (
        "public.event_outbox: 4 rows not imported yet\n\n"
        "TYPE          ROWS  BECOMES\n"
        "order.placed  3     order.ship\n"
        "order.lost    1     unknown, left\n\n"
        "The first jobs:\n\n"
        "ROW  KIND        DUE  KEY  PAYLOAD\n"
        '1    order.ship  -    1    {"order_id": 1}\n'
        '2    order.ship  -    2    {"order_id": 2}\n'
        '3    order.ship  -    -    {"password": "[redacted]"}\n\n'
        "Imported rows stay as they are: stop the old worker first, or mark them with --set or --delete.\n\n"
        "Nothing was written. --apply imports 3 rows.\n"
    )
    assert jobs(conn) == []
    assert audited(conn) == []
    assert number(conn, "SELECT count(*) FROM holdfast.imported") == 0


def test_rows_become_jobs_in_their_order_once(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 3)
    options = (*SOURCE, *SHIP, "--key", "aggregate_id", "--apply", "--batch", "2")
    output = run(database, *options)
    assert output.status == 0
    assert output.out.startswith("public.event_outbox: imported 3 rows as jobs in ")
    assert output.out.endswith("KIND        ROWS\norder.ship  3\n\nNo row is left to import.\n")
    made = [("order.ship", {"order_id": n}, str(n), f"public.event_outbox {n}") for n in (1, 2, 3)]
    assert jobs(conn) == made
    assert run(database, *options).out.startswith("public.event_outbox: imported 0 rows")
    assert jobs(conn) == made
    assert audited(conn) == [(ME, "outbox.import", "public.event_outbox", None)] * 2
    assert run(database, *SOURCE, *SHIP).out == "public.event_outbox: no row is left to import.\n"


def test_the_application_checks_payloads_and_refused_rows_are_left(
    database: str, conn: psycopg.Connection[Any], shop: Path
) -> None:
    make_outbox(conn, 1)
    placed(conn, '{"order_id": "seven"}')
    placed(conn, "[1]")
    placed(conn, '{"to": "a@b.c"}', type_="mail.send")
    placed(conn, '{"order_id": 7}', type_="pdf.render")
    placed(conn, '{"order_id": "x"}', type_="pdf.render")
    options = ("outbox_shop:app", *SOURCE, *SHIP)
    preview = run(database, *options, "--json", cwd=shop).json
    output = run(database, *options, "--apply", cwd=shop)
    assert output.status == 1
    assert "Refused and left: 3 rows\n\nROW  TYPE          REASON\n2    order.placed  order.ship: " in output.out
    assert "3    order.placed  order.ship: the payload is not a JSON object\n" in output.out
    assert "3 rows left, not imported:" in output.out
    assert "run it again" not in output.out
    made = [("order.ship", "shipping"), ("mail.send", "default"), ("pdf.render", "default")]
    assert conn.execute("SELECT kind, queue FROM holdfast.job ORDER BY id").fetchall() == made
    assert (preview["rows"], preview["refused"], preview["applied"]) == (3, 3, False)
    assert [refusal["id"] for refusal in preview["refusals"]] == ["2", "3", "6"]
    # Mended by hand, they are imported by the next run.
    conn.execute("UPDATE event_outbox SET payload = '{\"order_id\": 1}' WHERE id IN (2, 3, 6)")
    assert run(database, *options, "--apply", cwd=shop).status == 0
    assert len(jobs(conn)) == 6


@pytest.mark.parametrize(
    "refusal",
    [
        "ALTER TABLE holdfast.job ADD CONSTRAINT no_three CHECK ((payload ->> 'order_id') <> '3')",
        (
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not with us'; END $$;"
            "CREATE TRIGGER no_three BEFORE INSERT ON holdfast.job FOR EACH ROW"
            " WHEN ((NEW.payload ->> 'order_id') = '3') EXECUTE FUNCTION no()"
        ),
    ],
)
def test_a_row_that_the_database_refuses_keeps_no_other_back(
    database: str, conn: psycopg.Connection[Any], refusal: str
) -> None:
    make_outbox(conn, 5)
    conn.execute(refusal.encode())
    output = run(database, *SOURCE, *SHIP, "--apply", "--json")
    assert (output.status, output.json["rows"]) == (1, 4)
    assert [refusal["id"] for refusal in output.json["refusals"]] == ["3"]
    assert [payload["order_id"] for _, payload, _, _ in jobs(conn)] == [1, 2, 4, 5]
    assert number(conn, "SELECT count(*) FROM holdfast.imported") == 4


def test_rows_become_events(database: str, conn: psycopg.Connection[Any], shop: Path) -> None:
    make_outbox(conn)
    placed(conn, '{"order_id": 7}', type_="order.paid", key="k")
    placed(conn, '{"order": 8}', type_="order.paid")
    placed(conn, "1", type_="else")
    options = (*SOURCE, "--to", "event", "--key", "aggregate_id")
    output = run(database, "outbox_shop:app", *options, "--apply", "--json", cwd=shop)
    assert (output.status, output.json["by_name"], output.json["refused"]) == (1, {"order.paid": 1}, 1)
    # Without an application every type is a topic.
    assert run(database, *options, "--apply").status == 0
    events = conn.execute("SELECT topic, key, payload, headers FROM holdfast.event ORDER BY id").fetchall()
    assert [event[:3] for event in events] == [
        ("order.paid", "k", {"order_id": 7}),
        ("order.paid", None, {"order": 8}),
        ("else", None, 1),
    ]
    assert events[0][3] == {"imported-from": "public.event_outbox 1"}


def test_imported_rows_can_be_marked_in_the_same_transaction(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 3)
    # The trigger needs the path of its owner.
    conn.execute("CREATE TABLE log (id bigint)")
    conn.execute(
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END $$"
    )
    conn.execute("CREATE TRIGGER noted AFTER UPDATE ON event_outbox FOR EACH ROW EXECUTE FUNCTION noted()")
    marks = ("--set", "status=sent", "--set", "sent_at=now")
    assert run(database, *SOURCE, *SHIP, *marks, "--apply").status == 0
    assert statuses(conn) == {"sent": 3}
    assert number(conn, "SELECT count(*) FROM event_outbox WHERE sent_at > now() - interval '1 minute'") == 3
    assert number(conn, "SELECT count(*) FROM log") == 3


def test_imported_rows_can_be_deleted(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 3)
    conn.execute("UPDATE event_outbox SET status = 'sent' WHERE id = 2")
    assert run(database, *SOURCE, *SHIP, "--delete", "--apply").status == 0
    assert statuses(conn) == {"sent": 1}
    assert [payload["order_id"] for _, payload, _, _ in jobs(conn)] == [1, 3]


def test_values_of_a_column_are_alternatives_and_columns_are_not(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 4)
    conn.execute("UPDATE event_outbox SET status = 'processing' WHERE id = 2")
    conn.execute("UPDATE event_outbox SET status = 'sent' WHERE id = 3")
    conn.execute("UPDATE event_outbox SET locked_until = now() WHERE id = 4")
    also = ("--where", "status=processing", "--where-null", "locked_until")
    assert run(database, *SOURCE, *SHIP, *also, "--apply").status == 0
    assert [payload["order_id"] for _, payload, _, _ in jobs(conn)] == [1, 2]


def test_a_table_of_another_shape(database: str, conn: psycopg.Connection[Any]) -> None:
    """Names with capitals and signs, random ids, JSON as text, bytes that are no text, and times in the future."""
    conn.execute('CREATE SCHEMA "Shop%"')
    conn.execute(
        'CREATE TABLE "Shop%"."OutboxEvent" ("eventId" uuid PRIMARY KEY DEFAULT gen_random_uuid(), "event""Type" text, '
        '"body" bytea, "availableAt" timestamp, "createdAt" timestamptz)'
    )
    insert = (
        'INSERT INTO "Shop%%"."OutboxEvent" ("event""Type", body, "availableAt", "createdAt") VALUES (%s, %s, %s, %s)'
    )
    rows: list[tuple[str, bytes, str | None, str | None]] = [
        ("b", b'{"n": 3, "price": 12345678901234.1234567890}', "2999-01-01 10:00", "2026-01-03"),
        ("b", b'{"n": 2, "text": "\\u0000"}', None, "2026-01-02"),
        ("b", b'{"n": 1}', "2020-01-01", None),
        ("b", b"\xff", None, "2026-01-04"),
        ("b", b'{"n": NaN}', None, "2026-01-05"),
        ("b", b'{"n": 4}', "infinity", "2026-01-06"),
    ]
    for row in rows:
        conn.execute(insert, row)
    names = ("--table", "Shop%.OutboxEvent", "--id", "eventId", "--type", 'event"Type', "--payload", "body")
    more = ("--at", "availableAt", "--created", "createdAt", "--map", "b=kind", "--batch", "1", "--apply", "--json")
    output = run(database, *names, *more)
    assert (output.status, output.json["rows"], output.json["table"]) == (1, 3, '"Shop%"."OutboxEvent"')
    reasons = [refusal["reason"] for refusal in output.json["refusals"]]
    assert reasons == [
        "the payload is not UTF-8",
        "the payload is not JSON (ValueError)",
        "the time infinity is out of the calendar",
    ]
    made = conn.execute("SELECT payload::text, available_at::text FROM holdfast.job ORDER BY id").fetchall()
    assert [payload for payload, _ in made] == [
        '{"n": 1}',
        '{"$json":"{\\"n\\":2,\\"text\\":\\"\\\\u0000\\"}"}',
        '{"n": 3, "price": 12345678901234.1234567890}',
    ]
    assert made[2][1].startswith("2999-01-01 10:00")


def test_a_row_that_commits_late_with_a_smaller_id_is_imported(
    database: str, conn: psycopg.Connection[Any], connect: Connect
) -> None:
    make_outbox(conn)
    late = connect(autocommit=False)
    add(late, 1)
    add(conn, 3)
    options = (*SOURCE, *SHIP, "--apply")
    assert run(database, *options).status == 0
    assert imported(conn) == exactly(4)[1:]
    late.commit()
    assert run(database, *options).status == 0
    assert imported(conn) == exactly(4)


def test_a_row_that_commits_behind_the_import_is_found_by_its_second_pass(
    database: str, conn: psycopg.Connection[Any], connect: Connect, tmp_path: Path
) -> None:
    make_outbox(conn)
    late = connect(autocommit=False)
    add(late, 1)
    add(conn, 3)
    hold_batches(conn, 2)
    process = start(*SOURCE, *SHIP, "--apply", "--batch", "1", database=database, cwd=tmp_path)
    await_batch(conn, 2)
    late.commit()
    release_batch(conn, 2)
    out, _ = process.communicate(timeout=PATIENCE)
    assert "imported 4 rows" in out
    assert imported(conn) == exactly(4)


def test_a_row_that_the_old_worker_holds_is_left_to_it(
    database: str, conn: psycopg.Connection[Any], connect: Connect
) -> None:
    make_outbox(conn, 3)
    old = connect(autocommit=False)
    old.execute("SELECT FROM event_outbox WHERE id = 2 FOR UPDATE SKIP LOCKED")
    old.execute("UPDATE event_outbox SET status = 'sent' WHERE id = 2")
    output = run(database, *SOURCE, *SHIP, "--apply")
    assert output.status == 1
    assert "1 row left, not imported:" in output.out
    assert "1 row of them locked or added meanwhile, or beyond --limit: run it again.\n" in output.out
    old.commit()
    assert run(database, *SOURCE, *SHIP, "--apply").status == 0
    assert [payload["order_id"] for _, payload, _, _ in jobs(conn)] == [1, 3]


def test_two_at_once_import_every_row_once(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    make_outbox(conn, 3_000)
    hold_batches(conn, 1)
    both = [start(*SOURCE, *SHIP, "--apply", "--batch", "50", database=database, cwd=tmp_path) for _ in range(2)]
    await_batch(conn, 1)  # one waits with rows that the other skips
    release_batch(conn, 1)
    for process in both:
        process.communicate(timeout=PATIENCE)
    assert imported(conn) == exactly(3_000)


@pytest.mark.parametrize("rows", [1_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_killed_twice_it_imports_every_row_once(
    database: str, conn: psycopg.Connection[Any], shop: Path, rows: int
) -> None:
    """Each kill comes within a transaction: its rows are recorded and not committed."""
    make_outbox(conn, rows)
    size = rows // 100
    hold_batches(conn, 30, 70)
    options = ("outbox_shop:app", *SOURCE, *SHIP, "--apply", "--batch", str(size))
    for batch in (30, 70):
        process = start(*options, database=database, cwd=shop)
        await_batch(conn, batch)
        process.kill()
        process.communicate()
        assert number(conn, "SELECT count(*) FROM holdfast.job") < rows
        release_batch(conn, batch)
    process = start(*options, database=database, cwd=shop)
    out, _ = process.communicate(timeout=10 * PATIENCE)
    assert process.returncode == 0, out
    assert imported(conn) == exactly(rows)
    assert number(conn, "SELECT count(*) FROM holdfast.imported") == rows


def test_a_limit_ends_it_early(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 10)
    output = run(database, *SOURCE, *SHIP, "--apply", "--limit", "7", "--batch", "5")
    assert output.status == 1
    assert "3 rows left" in output.out
    assert imported(conn) == exactly(7)


def test_an_operator_may_import_what_is_theirs(database: str, conn: psycopg.Connection[Any]) -> None:
    make_outbox(conn, 2)
    conn.execute("CREATE ROLE importer LOGIN IN ROLE holdfast_operator")
    try:
        output = run(f"{database}?user=importer", *SOURCE, *SHIP, "--apply")
        assert output.status == 1
        assert "importer may not: permission denied for table event_outbox" in output.err
        conn.execute("GRANT SELECT, UPDATE ON event_outbox TO importer")
        assert run(f"{database}?user=importer", *SOURCE, *SHIP, "--apply").status == 0
    finally:
        conn.execute("DROP OWNED BY importer")
        conn.execute("DROP ROLE importer")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_PACE", (0.0, 0.0))
    with progress.ProgressLine(argparse.Namespace(json=False)) as line_of_rows:
        show = import_outbox._progress(line_of_rows, 10, "imported")
        show(Tally(imported=Counter(mail=4), started=time.monotonic() - 2))
    line = "imported 4 of 10, 2 rows/s"
    assert shown.getvalue() == (f"\r\x1b[K[########............]  40% {line}\r\x1b[K" if terminal else f"{line}\n")


NO_COLUMN = "public.event_outbox has no column"
TYPES = "smallint, integer, bigint, numeric, uuid, text, character varying, character"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say which table: --table schema.name, or --preset"),
        (
            ("--table", "event_outbocks", *SHIP),
            "--table: there is no table public.event_outbocks: did you mean public.event_outbox?",
        ),
        (("--table", TABLE, *SHIP, "--type", "event_typ"), f"--type: {NO_COLUMN} event_typ: did you mean event_type?"),
        ((*SOURCE,), "say what rows become: give the application, or --map TYPE=KIND"),
        ((*SOURCE, *SHIP, "--where", "state=x"), f"--where: {NO_COLUMN} state: did you mean status?"),
        ((*SOURCE, *SHIP, "--id", "payload"), f"--id: payload is of type jsonb, and can be one of {TYPES}"),
        ((*SOURCE, *SHIP, "--id", "attempts"), "--id: attempts must be NOT NULL and have a unique index of its own"),
        ((*SOURCE, *SHIP, "--at", "status"), "--at: status is of type text, and not a time"),
        (
            (*SOURCE, *SHIP, "--to", "event", "--at", "created_at"),
            "--at is for jobs: an event has no time at which it is due",
        ),
        (
            ("outbox_shop:app", *SOURCE, "--map", "a=order.shipp"),
            "--map: the application has no kind order.shipp: did you mean order.ship?",
        ),
    ],
)
def test_wrong_usage(
    database: str, conn: psycopg.Connection[Any], shop: Path, arguments: tuple[str, ...], message: str
) -> None:
    make_outbox(conn)
    assert run(database, *arguments, cwd=shop) == (2, "", f"holdfast import-outbox: {message}\n")


def test_a_pair_needs_both_parts(database: str) -> None:
    output = run(database, "--map", "order.placed")
    assert output.status == 2
    assert output.err == "holdfast import-outbox: --map: 'order.placed': write NAME=VALUE\n"
