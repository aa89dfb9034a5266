"""PROTOCOL, section 4: sleepers are woken, and no other worker is notified."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.enqueue import enqueue_job, enqueue_jobs
from tests.kit.mutation import forget_settings, open_trap
from tests.kit.plans import buffers
from tests.kit.sessions import add_gate, held_at_gate, held_snapshot
from tests.kit.workers import RETRIED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from psycopg import Connection

    from holdfast._store.statement import Statement
    from tests.kit.workers import Connect

# Both ways in: for one job, and for many.
WAYS: dict[str, Statement[Any]] = {"enqueue": enqueue_job(job()), "enqueue_jobs": enqueue_jobs([job()])}
LOOKS = {"enqueue": "wake_for", "enqueue_jobs": "wake_sleepers"}
"""The function that looks for sleepers, by the way to it."""
both_ways = pytest.mark.parametrize("way", WAYS)

ISOLATED = "current_setting('transaction_isolation') <> 'read committed'"


class Sleeper:
    """A worker that has lain down: its record is committed and it listens."""

    def __init__(self, connect: Connect, *kinds: str, queue: str = "default", seconds: float = 10) -> None:
        self.conn = connect()
        self.worker = Worker(self.conn, *kinds, queues=[queue])
        self.conn.execute("LISTEN holdfast")
        self.conn.execute(f"LISTEN holdfast_{self.worker.id}".encode())
        self.conn.execute(
            "INSERT INTO holdfast.sleeper (until, worker_id, queue, kinds) "
            "VALUES (clock_timestamp() + %s * interval '1 second', %s, %s, %s)",
            [seconds, self.worker.id, queue, list(self.worker.leases)],
        )

    def received(self) -> list[tuple[str, str]]:
        """Return what was notified so far: `own` or `all`, and the queue, which is `default` for a job by its name."""
        self.conn.execute("SELECT 1")  # a server sends what is due with its next answer
        return [
            ("all" if note.channel == "holdfast" else "own", re.sub(r"(job|late) \d+", "default", note.payload))
            for note in self.conn.notifies(timeout=0.05)
        ]


@both_ways
def test_a_worker_that_falls_asleep_during_the_insert_is_woken(connect: Connect, way: str) -> None:
    def woken() -> bool:
        """Let a worker record itself and look while an insert is under way: it sees no job, so it must be notified."""
        user, keeper = connect(), connect()
        with held_at_gate(keeper, user, lambda: run_sync(user, WAYS[way])):
            sleeper = Sleeper(connect)
            assert sleeper.worker.claim() == []
        received = sleeper.received()
        keeper.execute("DELETE FROM holdfast.sleeper")
        keeper.execute("DELETE FROM holdfast.job")
        return received == [("own", "default")]

    add_gate(connect())
    assert woken()
    # The trap: look first, then insert. The same in one statement, which has one snapshot.
    open_trap(
        connect(),
        way,
        (
            "clock timestamptz := clock_timestamp();",
            "clock timestamptz := clock_timestamp(); asleep boolean := EXISTS (SELECT FROM holdfast.sleeper);",
        ),
        ("OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN", "OR asleep THEN"),
    )
    assert not woken()


@both_ways
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_tells_everybody(connect: Connect, way: str, level: str) -> None:
    def received() -> list[tuple[str, str]]:
        user = connect()
        user.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        user.execute("SELECT 1")
        sleeper = Sleeper(connect)
        run_sync(user, WAYS[way])
        user.execute("COMMIT")
        user.execute("DELETE FROM holdfast.sleeper")
        return sleeper.received()

    assert received() == [("all", "default")]
    open_trap(connect(), way, (ISOLATED, "false"))
    assert received() == []


@both_ways
def test_expired_sleepers_are_ignored(connect: Connect, way: str) -> None:
    awake = Sleeper(connect, seconds=-1)
    run_sync(connect(), WAYS[way])
    assert awake.received() == []
    open_trap(connect(), LOOKS[way], ("s.until > clock AND", ""))
    open_trap(connect(), way, ("FROM holdfast.sleeper WHERE until > clock", "FROM holdfast.sleeper"))
    run_sync(connect(), WAYS[way])
    assert awake.received() == [("own", "default")]


def test_one_notification_for_a_whole_transaction(connect: Connect) -> None:
    sleeper = Sleeper(connect, "k", "m")
    user = connect()
    enqueue(user, *[job(kind) for kind in ("k", "m") for _ in range(500)])
    assert sleeper.received() == [("own", "default")]
    with user.transaction():
        for _ in range(3):
            enqueue(user, job())
    assert sleeper.received() == [("own", "default")]
    # The trap: a notification that names what it is about is never the same as the last.
    open_trap(connect(), "wake_sleepers", (", given.queue);\n", ", given.queue || random());\n"))
    with user.transaction():
        for _ in range(3):
            enqueue(user, job())
    assert len(sleeper.received()) == 3


def test_two_sleepers_are_woken_and_they_serve_the_kind(connect: Connect) -> None:
    def received() -> list[str]:
        right = [Sleeper(connect, "k") for _ in range(3)]
        wrong = Sleeper(connect, "m", seconds=20)
        far = Sleeper(connect, "k", queue="other", seconds=30)
        enqueue(connect(), job("k"))
        names = {
            "k": [note for one in right for note in one.received()],
            "m": wrong.received(),
            "other": far.received(),
        }
        connect().execute("DELETE FROM holdfast.sleeper")
        return [name for name, notes in names.items() for _ in notes]

    assert received() == ["k", "k"]
    open_trap(connect(), "wake_sleepers", ("AND given.kind = ANY (s.kinds)", ""))
    assert received() == ["k", "m"], "somebody who has no use for the job was woken in vain"


def test_what_comes_back_wakes_too(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(), job(order_key="a"), job(order_key="a"))
    claimed = worker.claim()
    sleeper = Sleeper(connect)
    worker.end([claimed[0]], RETRIED)
    assert sleeper.received() == [("own", "default")]
    worker.end([claimed[1]])
    assert sleeper.received() == [("own", "default")], "promoted"
    open_trap(connect(), "settle_batch", ("ids || successors", "ids"))
    worker.end([taken for taken in worker.claim() if taken.order_key])
    assert sleeper.received() == []


def leave_dead_sleepers(conn: Connection[Any], rows: int) -> None:
    conn.execute(
        "INSERT INTO holdfast.sleeper SELECT now() - n * interval '1 millisecond', n, 'default', '{k}' "
        "FROM generate_series(1, %s) AS n",
        [rows],
    )
    conn.execute("DELETE FROM holdfast.sleeper")


@both_ways
def test_dead_sleepers_cost_an_enqueue_nothing(connect: Connect, way: str) -> None:
    conn = connect()
    alone = buffers(conn, WAYS[way])
    look = "FROM holdfast.sleeper WHERE until > clock"
    with held_snapshot(connect()):
        leave_dead_sleepers(conn, 20_000)
        assert buffers(conn, WAYS[way]) <= alone + 20
        # The traps: a clock that bounds no index, and a scan of the table, which seems cheaper where one row will do.
        open_trap(conn, way, (look, "FROM holdfast.sleeper WHERE until > clock_timestamp()"))
        assert buffers(conn, WAYS[way]) > alone + 100
        open_trap(conn, way, ("FROM holdfast.sleeper WHERE until > clock_timestamp()", look))
        forget_settings(conn, way, "enable_seqscan")
        assert buffers(conn, WAYS[way]) > alone + 100


def test_a_look_in_a_long_transaction_skips_later_sleepers(connect: Connect) -> None:
    """They are bounded by the clock: by the time of the transaction's begin every record since would be visited."""
    conn, other = connect(), connect()
    conn.execute("BEGIN")
    conn.execute("SELECT now()")
    other.execute(
        "INSERT INTO holdfast.sleeper SELECT clock_timestamp(), n, 'default', '{a}' FROM generate_series(1, 5000) AS n"
    )
    other.execute("INSERT INTO holdfast.sleeper SELECT clock_timestamp() + interval '10 s', 1, 'other', '{a}'")
    fetched = "SELECT pg_stat_get_xact_tuples_returned('holdfast.sleeper_until'::regclass)"
    conn.execute("SELECT holdfast.enqueue('a')")
    assert number(conn, fetched) < 100
    open_trap(other, "wake_for", ("s.until > clock AND", "s.until > now() AND"))
    conn.execute("SET LOCAL holdfast.woken = off")  # a transaction names one job
    conn.execute("SELECT holdfast.enqueue('a')")
    assert number(conn, fetched) >= 5000
    conn.execute("ROLLBACK")


def test_a_look_among_many_sleepers_stops_at_two(connect: Connect) -> None:
    conn = connect()
    conn.execute(
        "INSERT INTO holdfast.sleeper "
        "SELECT clock_timestamp() + interval '9 s', n, 'default', '{a}' FROM generate_series(1, 1000) AS n"
    )
    fetched = "SELECT pg_stat_get_xact_tuples_returned('holdfast.sleeper_until'::regclass)"
    conn.execute("BEGIN")
    conn.execute("SELECT holdfast.enqueue('a')")
    assert number(conn, fetched) < 20
    open_trap(conn, "wake_for", ("ORDER BY s.until DESC LIMIT 1", "ORDER BY md5(s.worker_id::text) LIMIT 1"))
    conn.execute("SET LOCAL holdfast.woken = off")  # a transaction names one job
    conn.execute("SELECT holdfast.enqueue('a')")
    assert number(conn, fetched) >= 1000
    conn.execute("ROLLBACK")
