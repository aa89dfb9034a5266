from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast._drivers import run
from holdfast._store.subscription import ParkedEvent, advance_position, clear_subscription
from tests.cli.auditing import ME, audited
from tests.kit.commands import PATIENCE, environment, holdfast
from tests.relay.reading import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
async def reader(conn: psycopg.AsyncConnection[Any]) -> Reader:
    """Worker 7, who holds all of `out`."""
    reader = Reader(conn, "out", worker=7, partitions=2)
    await reader.join()
    return reader


async def publish(conn: psycopg.AsyncConnection[Any], count: int, *, key: str = "k") -> int:
    """Publish so many events, each in a transaction of its own; return the id of the last."""
    last = 0
    for _ in range(count):
        row = await (await conn.execute("SELECT holdfast.publish('paid', '{}', key => %s)", [key])).fetchone()
        assert row is not None
        last = row[0]
    return last


async def restore(conn: psycopg.AsyncConnection[Any], name: str) -> None:
    """Leave a subscription as a logical restore does: another server's, its rows written by another transaction."""
    await conn.execute("UPDATE holdfast.subscription SET cluster = 1 WHERE name = %s", [name])
    theirs = "SELECT id FROM holdfast.subscription WHERE name = %s"
    await conn.execute(f"UPDATE holdfast.position SET seq = seq WHERE subscription_id = ({theirs})".encode(), [name])


async def read(reader: Reader) -> list[int]:
    """Take what is free, and read everything."""
    await reader.join()
    return sorted([event.id for part in range(reader.partitions) for event in await reader.read(part)])


async def park(reader: Reader, *events: tuple[int, str, str | None]) -> None:
    parked = [
        ParkedEvent(id_, key, holds_key=True, error_code=code, error=code and "not wanted") for id_, key, code in events
    ]
    held = reader.held[0]
    moved = await run(
        reader.conn, advance_position(reader.subscription, reader.worker, held, held.position, parked=parked)
    )
    assert moved is not None
    reader.held[0] = moved


def answered(answer: str, *arguments: str, database: str) -> tuple[int, str, str]:
    """Run the command at a terminal, where a person types this."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(  # noqa: S603 - the command under test
            [sys.executable, "-m", "holdfast", *arguments],
            env=environment(database),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(theirs)
        with suppress(OSError):
            os.write(ours, f"{answer}\n".encode())
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        os.close(ours)
    return process.returncode, out, err


async def test_nothing_yet(database: str) -> None:
    output = holdfast("events", database=database)
    assert (output.status, output.err) == (0, "")
    assert output.out.startswith("No subscription is stored")
    assert holdfast("events", "--json", database=database).json == []


async def test_how_far_each_partition_is(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    ledger = Reader(conn, "ledger")
    await ledger.join(beginning=True, lease_ms=1)
    last = await publish(conn, 3)
    await park(reader, (last, "k", "Refused"))
    output = holdfast("events", database=database)
    assert (output.status, output.err) == (0, "")
    head, *lines = output.out.splitlines()
    assert head.split()[:5] == ["NAME", "PARTITION", "TARGET", "HOLDER", "EVENTS"]
    assert head.split()[5:] == ["BEHIND", "SECONDS", "PARKED", "STATE", "MOVED"]
    assert [line.split()[:5] for line in lines] == [
        ["ledger", "0", "test", "-", "3"],  # its lease is over
        ["out", "0", "test", "7", "3"],
        ["out", "1", "test", "7", "3"],
    ]
    assert [line["parked"] for line in holdfast("events", "list", "--json", database=database).json] == [0, 1, 0]
    assert await read(reader) == [last - 2, last - 1, last]
    lines = holdfast("events", "--json", database=database).json
    assert [(line["name"], line["events"], line["seconds"]) for line in lines[1:]] == [("out", 0, 0.0)] * 2
    assert lines[0]["seconds"] > 0
    assert datetime.fromisoformat(lines[0]["at"]).tzinfo == UTC


async def test_pause_and_resume(database: str, reader: Reader) -> None:
    output = holdfast("events", "pause", "out", database=database)
    assert (output.status, output.out) == (0, "out: paused; its reader stops within a lease\n")
    assert (await reader.join()).paused
    assert "paused" in holdfast("events", database=database).out
    output = holdfast("events", "resume", "out", "--json", database=database)
    assert output.json == {"name": "out", "action": "resume"}
    assert not (await reader.join()).paused


async def test_replay(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    last = await publish(conn, 4)
    assert await read(reader) == [last - 3, last - 2, last - 1, last]
    output = holdfast("events", "replay", "out", "--after", str(last - 2), database=database)
    assert (output.status, output.out) == (
        0,
        f"out: hands over again what came after event {last - 2}, and then goes on\n",
    )
    assert "replaying" in holdfast("events", database=database).out
    assert await read(reader) == [last - 1, last]
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    output = holdfast("events", "replay", "out", "--since", since, "--json", database=database)
    assert output.json == {"name": "out", "action": "replay", "after": last - 4}
    new = await publish(conn, 1)
    assert await read(reader) == [last - 3, last - 2, last - 1, last, new]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    output = holdfast("events", "replay", "out", "--since", later, database=database)
    assert output == (0, "out: nothing was published since: nothing to hand over again\n", "")
    assert await read(reader) == []


async def test_skip(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    await publish(conn, 3)
    output = holdfast("events", "skip", "out", database=database)
    assert output.status == 2
    assert output.err.startswith("holdfast events: this cannot be undone: give --yes")
    assert holdfast("events", "skip", "out", "--yes", database=database).status == 0
    new = await publish(conn, 1)
    assert await read(reader) == [new]


@pytest.mark.parametrize(("answer", "done"), [("y", True), ("", False), ("no", False)])
async def test_a_person_is_asked(database: str, reader: Reader, answer: str, done: bool) -> None:
    status, out, err = answered(answer, "events", "delete", "out", database=database)
    assert "Delete out, how far it has read, and what is parked?" in out
    assert status == (0 if done else 1)
    assert ("nothing was done" in err) == (not done)
    names = [line["name"] for line in holdfast("events", "--json", database=database).json]
    assert names == ([] if done else ["out", "out"])


async def test_delete(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    last = await publish(conn, 1)
    await park(reader, (last, "k", "Refused"))
    await conn.execute(
        "INSERT INTO holdfast.parked (subscription_id, event_id, partition, holds_key) "
        "SELECT subscription_id, event_id + n, partition, false FROM holdfast.parked, generate_series(1, 25000) AS n"
    )
    known = await (await conn.execute("SELECT id FROM holdfast.subscription")).fetchone()
    assert known is not None
    assert await run(conn, clear_subscription(known[0], limit=5_000)) == 5_000
    row = await (await conn.execute("SELECT count(*) FROM holdfast.parked")).fetchone()
    assert row == (20_001,), "a piece, and no more"
    assert holdfast("events", "delete", "out", "--yes", database=database).status == 0
    for table in ("subscription", "position", "parked"):
        row = await (await conn.execute(f"SELECT count(*) FROM holdfast.{table}".encode())).fetchone()
        assert row == (0,)


async def test_rebase(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect) -> None:
    other = Reader(conn, "other")
    await other.join()
    last = await publish(conn, 3)
    assert len(await read(reader)) == 3
    output = holdfast("events", "rebase", "out", database=database)
    assert output.status == 1
    assert "out was not restored from another server: to hand events over again, `replay` it" in output.err
    await restore(conn, "out")
    assert (await reader.join()).elsewhere
    reported = holdfast("events", database=database).out
    assert "elsewhere" in reported
    assert "out was restored from another server, and reads nothing: `holdfast events rebase out`" in reported
    output = holdfast("events", "rebase", "--all", "--json", database=database)
    assert output.json == [{"name": "out", "action": "rebase", "first": last - 2}]
    assert audited(connect()) == [(ME, "subscription.rebase", "out", None)]
    # What may be unread comes again, and what is new.
    new = await publish(conn, 1)
    assert await read(reader) == [last - 2, last - 1, last, new]
    output = holdfast("events", "rebase", "--all", database=database)
    assert output == (0, "No subscription came from another server.\n", "")


async def test_rebase_during_a_publish(
    database: str, conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect
) -> None:
    await restore(conn, "out")
    with (busy := connect()).transaction():
        busy.execute("SELECT holdfast.publish('paid', '{}')")
        output = holdfast("events", "rebase", "out", database=database)
    assert output.status == 1
    assert "out: events are being published now: stop the publishers for a moment and try again" in output.err


async def test_repartition(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    ids = [await publish(conn, 1, key=str(n)) for n in range(8)]
    output = holdfast("events", "repartition", "out", "4", database=database)
    assert (output.status, output.out) == (0, "out: has 4 partitions; some events may be handed over again\n")
    assert await read(reader) == ids
    assert [line["partition"] for line in holdfast("events", "--json", database=database).json] == [0, 1, 2, 3]


async def test_one_that_makes_jobs_is_not_repartitioned(
    database: str, conn: psycopg.AsyncConnection[Any], reader: Reader
) -> None:
    await conn.execute("UPDATE holdfast.subscription SET makes_jobs = true, partitions = 1")
    output = holdfast("events", "repartition", "out", "4", database=database)
    assert output.status == 1
    assert "out makes jobs, and those are shared already: only a relay is cut" in output.err
    assert [line["partition"] for line in holdfast("events", "--json", database=database).json] == [0]


async def test_parked_and_released(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    assert holdfast("events", "parked", "out", database=database).out == "out: nothing is parked.\n"
    last = await publish(conn, 3)
    await park(reader, (last - 2, "k", "Refused"), (last - 1, "k", None), (last, "other", "Refused"))
    head, *lines = holdfast("events", "parked", "out", database=database).out.splitlines()
    assert head.split() == ["EVENT", "TOPIC", "KEY", "PARKED", "STATE", "TRIED", "AGAIN", "ERROR"]
    assert [line.split()[:3] for line in lines] == [
        [str(last - 2), "paid", "k"],
        [str(last - 1), "paid", "k"],
        [str(last), "paid", "other"],
    ]
    assert lines[0].endswith("not taken       -            not wanted")
    assert "behind its key" in lines[1]
    after = holdfast("events", "parked", "out", "--after", str(last - 2), "--json", database=database).json
    assert [line["event_id"] for line in after] == [last - 1, last]
    output = holdfast("events", "release", "out", "--key", "k", database=database)
    assert output == (0, "out: 2 parked events of the key k will be tried again, in order\n", "")
    listed = holdfast("events", "parked", "out", "--json", database=database).json
    assert [line["released_at"] is not None for line in listed] == [True, True, False]
    output = holdfast("events", "release", "out", "--json", database=database)
    assert output.json == {"name": "out", "action": "release", "released": 1}
    assert holdfast("events", "release", "out", database=database).out == "out: nothing is parked\n"


async def test_what_is_due_later_is_released_before_what_follows_it(
    database: str, conn: psycopg.AsyncConnection[Any], reader: Reader
) -> None:
    last = await publish(conn, 2)
    await park(reader, (last - 1, "k", "Slow"), (last, "k", None))
    await conn.execute("UPDATE holdfast.parked SET released_at = now() + interval '1 hour' WHERE error_code = 'Slow'")
    output = holdfast("events", "release", "out", "--key", "k", "--json", database=database)
    assert output.json["released"] == 2
    due = await conn.execute("SELECT event_id FROM holdfast.parked WHERE released_at <= now() ORDER BY event_id")
    assert await due.fetchall() == [(last - 1,), (last,)]


async def test_what_was_done_is_in_the_audit_table(
    database: str, conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect
) -> None:
    last = await publish(conn, 1)
    await park(reader, (last, "k", "Refused"))
    for arguments in (
        ("pause", "out"),
        ("resume", "out"),
        ("replay", "out", "--after", "0"),
        ("release", "out", "--key", "k"),
        ("release", "out", "--key", "nobody's"),
        ("repartition", "out", "3"),
        ("skip", "out"),
        ("skip", "out", "--yes"),
        ("parked", "out"),
        ("delete", "out", "--yes"),
        ("pause", "out"),
    ):
        holdfast("events", *arguments, database=database)
    done = ("pause", "resume", "replay", "release", "release", "repartition", "skip", "delete")
    assert audited(connect()) == [(ME, f"subscription.{action}", "out", None) for action in done]
    details = await conn.execute("SELECT detail FROM holdfast.audit WHERE detail::text <> '{}' ORDER BY id")
    assert await details.fetchall() == [({"after": 0},), ({"key": "k"},), ({"key": "nobody's"},), ({"partitions": 3},)]


async def test_a_viewer_may_look_and_not_act(database: str, conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    name = sql.Identifier(f"test_events_{os.getpid()}")
    await conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_viewer").format(name))
    try:
        viewer = database.replace("postgres@", f"test_events_{os.getpid()}@")
        assert holdfast("events", database=viewer).status == 0
        assert holdfast("events", "parked", "out", database=viewer).status == 0
        output = holdfast("events", "pause", "out", database=viewer)
    finally:
        await conn.execute(sql.SQL("DROP ROLE {}").format(name))
    assert output.status == 1
    assert "may not: permission denied for table subscription. Looking needs" in output.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("outt", "no subscription is named outt: did you mean out?"),
        ("x", "no subscription is named x: there are out"),
    ],
)
async def test_a_name_that_is_not_there(database: str, reader: Reader, name: str, message: str) -> None:
    assert holdfast("events", "pause", name, database=database) == (1, "", f"holdfast events: {message}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause"],
        ["replay", "out"],
        ["replay", "out", "--after", "-1"],
        ["replay", "out", "--since", "yesterday"],
        ["replay", "out", "--since", "2026-11-15T07:30"],
        ["replay", "out", "--since", "2026-11-15T07:30Z", "--after", "1"],
        ["repartition", "out", "0"],
        ["repartition", "out", "65"],
        ["gone"],
    ],
    ids=" ".join,
)
def test_called_wrongly(arguments: list[str]) -> None:
    output = holdfast("events", *arguments)
    assert output.status == 2
    assert output.err.startswith("holdfast events")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["out", "--all"]], ids=" ".join)
async def test_rebase_needs_one_or_all(database: str, arguments: list[str]) -> None:
    output = holdfast("events", "rebase", *arguments, database=database)
    assert output == (2, "", "holdfast events: name one subscription, or give --all\n")
