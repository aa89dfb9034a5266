"""`holdfast move`: what it moves, says, refuses and leaves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import NewEvent
from holdfast._drivers import run_sync
from holdfast._store.event import publish_event
from holdfast._store.subscription import subscribe
from tests.cli.commands import Said, holdfast
from tests.databases import clone
from tests.traps.workers import Worker, enqueue, job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.postgres import Server

    Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def other(server: Server, template: str) -> Iterator[str]:
    with clone(server, template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("UPDATE holdfast.identity SET id = gen_random_uuid()")
        yield url


@pytest.fixture
def move(database: str, other: str) -> Callable[..., Said]:
    """Run the command between the databases `eu` and `us`."""

    def run(*arguments: str, source: str = "eu", destination: str = "us") -> Said:
        urls = f"eu={database} us={other}"
        return holdfast("move", "--from", source, "--to", destination, *arguments, HOLDFAST_DATABASE_URL=urls)

    return run


def test_it_moves_and_says_what_is_left(move: Callable[..., Said], connect: Connect, other: str) -> None:
    conn = connect()
    worker = Worker(conn)
    (running,) = enqueue(conn, job())
    worker.claim()
    ids = enqueue(conn, *[job() for _ in range(20)], job(after=[running]), job(unique="u"))
    run_sync(conn, subscribe("s", target="t", topics=(), partitions=1, beginning=True))
    run_sync(conn, publish_event(NewEvent("t", "{}")))
    with psycopg.connect(other, autocommit=True) as there:
        enqueue(there, job(unique="u"))
        said = move("--batch", "7")
        assert there.execute("SELECT count(*) FROM holdfast.job").fetchall() == [(21,)]
        audit = "SELECT action, target FROM holdfast.audit"
        assert there.execute(audit).fetchall() == conn.execute(audit).fetchall() == [("jobs.move", "eu to us")]
    assert said.status == 1, said
    assert "No live worker of us takes k (default)." in said.out
    assert "eu to us: moved 20 jobs" in said.out
    assert "1 job had a unique key of a live job" in said.out
    assert "1     running: they end here" in said.out
    assert "1     after a chain that has not ended or moved" in said.out
    assert "1 event of eu not read yet: events do not move, workers relay them." in said.out
    show = holdfast("jobs", "show", str(ids[0]), database=conn.info.dsn, PGPASSWORD="")
    assert show.status == 1
    assert f"job {ids[0]} has moved to the database us, as job " in show.err
    cancel = holdfast("jobs", "cancel", str(ids[0]), database=conn.info.dsn)
    assert re.fullmatch(rf"{ids[0]}: has moved to the database us, as job \d+\n", cancel.out), cancel
    assert cancel.status == 1


def test_it_ends_with_success_when_nothing_is_left(move: Callable[..., Said], connect: Connect) -> None:
    enqueue(connect(), job(order_key="a"), job())
    said = move("--json")
    assert said.status == 0, said
    told = said.json
    assert told.pop("seconds") > 0
    assert told == {"arrived": 2, "duplicates": 0, "returned": 0, "left": {}, "keys_held": 1, "events_left": 0}
    again = move()
    assert "No job is left in eu." in again.out
    assert "eu keeps 1 order key stopped until the jobs that moved have ended" in again.out


def test_a_key_that_a_move_holds_is_not_resumed(move: Callable[..., Said], connect: Connect, database: str) -> None:
    conn = connect()
    enqueue(conn, *[job(order_key="customer 7") for _ in range(2)])
    move("--limit", "1")
    held = "until its jobs that moved to the database us have ended"
    for url, source in ((database, "ADDRESS"), (f"eu={database}", "eu")):
        said = holdfast("jobs", "resume-key", "customer 7", HOLDFAST_DATABASE_URL=url)
        release = f"then `holdfast move --from {source} --to us` lets it go on"
        assert said == (1, "", f"holdfast jobs: the order key customer 7 is held {held}: {release}\n")
    assert conn.execute("SELECT order_key FROM holdfast.order_stop").fetchall() == [("customer 7",)]
    assert ("order_key.resume",) not in conn.execute("SELECT action FROM holdfast.audit").fetchall()


def test_what_waits_here_for_jobs_that_moved_is_reported(
    move: Callable[..., Said], connect: Connect, database: str
) -> None:
    conn = connect()
    chain, _ = enqueue(conn, job(), job(order_key="customer 7"))
    assert move().status == 0
    waiter, behind = enqueue(conn, job(after=[chain]), job(order_key="customer 7"))
    conn.execute("UPDATE holdfast.order_stop SET stopped_at = now() - interval '3 hours 5 minutes'")
    said = holdfast("check", "--json", HOLDFAST_DATABASE_URL=f"eu={database}")
    command = "`holdfast move --from eu --to us`"
    ends = f"when those have ended, release with {command}, or with --back to move no more jobs"
    assert [(one["verdict"], one["says"]) for one in said.json["findings"] if one["subject"] == "moving"] == [
        ("note", f"1 order key held for 3h 5m, because jobs moved to us: {ends}"),
        ("note", f"1 job waiting for chains that moved to us: let them follow with {command}"),
    ]
    ((there,),) = conn.execute("SELECT new_id FROM holdfast.moved WHERE job_id = %s", [chain]).fetchall()
    show = holdfast("jobs", "show", str(waiter), database=database).out
    gone = f"Chain {chain} has moved to the database us as chain {there}"
    assert "\nIt waits for the end of 1 chain.\n" in show
    assert f"\n{gone}: the job follows with the next `holdfast move` to us.\n" in show
    told = holdfast("jobs", "show", "--json", str(waiter), database=database).json
    assert told["moved_blockers"] == [{"chain_id": chain, "place": "us", "new_chain_id": there}]
    show = holdfast("jobs", "show", str(behind), database=database).out
    gone = "Jobs of its order key have moved to the database us"
    assert f"\n{gone}: it follows them with the next `holdfast move`.\n" in show


def test_a_preview_counts_and_writes_nothing(move: Callable[..., Said], connect: Connect) -> None:
    conn = connect()
    enqueue(conn, job("a"), job("a"), job("b", queue="q"))
    said = move("--dry-run", "--kind", "a")
    assert said.status == 0, said
    assert "default  a     2     moves" in said.out
    assert "Nothing was written. 2 jobs would move to us." in said.out
    assert conn.execute("SELECT count(*) FROM holdfast.audit").fetchall() == [(0,)]
    assert move("--dry-run", "--kind", "z").out == "eu: no job is left to move.\n"


def test_what_has_not_arrived_is_taken_back(move: Callable[..., Said], connect: Connect, other: str) -> None:
    conn = connect()
    (id_,) = enqueue(conn, job())
    with psycopg.connect(other) as there:
        row = there.execute("SELECT id::text FROM holdfast.identity").fetchone()
    assert row is not None
    conn.execute("SELECT holdfast.depart_jobs(%s::uuid, 'us', NULL, NULL, 0, 9, 9)", row)
    show = holdfast("jobs", "show", str(id_), database=conn.info.dsn)
    assert "is being moved to the database us" in show.err
    assert move("--back").out == "eu: took back 1 job\n"
    assert holdfast("jobs", "show", str(id_), database=conn.info.dsn).status == 0


def test_it_refuses_a_database_that_is_the_same_unknown_or_older(
    move: Callable[..., Said], database: str, other: str, server: Server, template: str
) -> None:
    assert "there is no database uk: there are eu, us" in move(destination="uk").err
    same = move(destination="eu")
    assert (same.status, "--from and --to are both eu" in same.err) == (2, True)
    twice = move(source=database, destination=database)
    assert (twice.status, "--from and --to are the same address" in twice.err) == (2, True)
    assert "they are one database" in move(destination=database).err
    with clone(server, template) as copy:
        assert "one is a copy of the other" in move(destination=copy).err
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("INSERT INTO holdfast.migration (number, name, checksum) VALUES (9999, '9999_new', 'x')")
    assert "the schema of us lacks 1 migration that eu has" in move().err


def test_nothing_leaves_for_a_database_that_only_reads(move: Callable[..., Said], connect: Connect, other: str) -> None:
    conn = connect()
    enqueue(conn, job())
    with psycopg.connect(other, autocommit=True) as there:
        there.execute(f"ALTER DATABASE {there.info.dbname} SET default_transaction_read_only = on")
    said = move()
    assert (said.status, "us: This server only reads" in said.err) == (1, True)
    assert conn.execute("SELECT count(*) FROM holdfast.job").fetchall() == [(1,)]


def test_nothing_leaves_if_the_user_may_not_write_there(
    connect: Connect, database: str, other: str, server: Server
) -> None:
    conn = connect()
    enqueue(conn, job())
    with psycopg.connect(other, autocommit=True) as there:
        there.execute("CREATE ROLE carrier LOGIN PASSWORD 'x' IN ROLE holdfast_viewer")
    try:
        carrier = psycopg.conninfo.make_conninfo(other, user="carrier", password="x")  # noqa: S106 - of this test
        said = holdfast("move", "--from", database, "--to", carrier)
        assert said.status == 1
        assert "may not" in said.err
        assert conn.execute("SELECT count(*) FROM holdfast.job").fetchall() == [(1,)]
        with psycopg.connect(server.url(), autocommit=True) as owner:
            owner.execute("GRANT holdfast_operator TO carrier")
        assert holdfast("move", "--from", database, "--to", carrier).status == 0
    finally:
        with psycopg.connect(server.url(), autocommit=True) as owner:
            owner.execute("DROP ROLE carrier")
