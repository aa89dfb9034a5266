"""A plain claim takes the first of what the whole claim would take next, or nothing."""

from __future__ import annotations

from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import Floors, Served, claim_jobs
from holdfast._store.plain import claim_plain
from holdfast._store.statement import pin_plans
from tests.kit.workers import Worker, enqueue, job

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

KINDS = ("k", "m")
_ORDER = attrgetter("priority", "available_at", "id")


class Claiming:
    """A worker whose floors are where its whole claims ended."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.worker = Worker(conn, *KINDS)
        self.served = Served(["default"], self.worker.leases)
        self.floors = Floors()
        run_sync(conn, pin_plans())

    def whole(self, limit: int, *, keep: bool = False) -> list[ClaimedJob]:
        with self.conn.transaction(force_rollback=not keep):
            claim = run_sync(
                self.conn,
                claim_jobs(
                    self.worker.id, {"default": limit}, self.worker.leases, served=self.served, floors=self.floors
                ),
            )
        if keep:
            self.floors.advance(claim.jobs, reach=0, took=0, begins=claim.begins, promoted=claim.promoted)
        return claim.jobs

    def plain(self, limit: int, windows: tuple[int, int] = (0, 0), *, keep: bool = False) -> list[ClaimedJob]:
        statement = claim_plain(
            self.worker.id, "default", limit, served=self.served, floors=self.floors, windows=windows
        )
        if statement is None:
            return []
        with self.conn.transaction(force_rollback=not keep):
            return run_sync(self.conn, statement)


def fill(conn: psycopg.Connection[Any], random: Random, jobs: int, *, special: float) -> None:
    """Insert jobs of several lanes, of the last minute and the next, of which a part is special in some way."""
    for _ in range(jobs):
        columns = {
            "kind": random.choice(["'k'", "'k'", "'m'", "'other'"]),
            "queue": random.choice(["'default'", "'default'", "'default'", "'elsewhere'"]),
            "priority": str(random.choice([5] * 12 + [0, 9])),
            "available_at": f"now() + {random.randint(-60, 6)} * interval '1 second'",
            "shard": str(random.randrange(64)),
        }
        if random.random() < special:
            name, value = random.choice(
                [
                    ("order_key", "'a'"),
                    ("limits", "'{a}'"),
                    ("suspect", "0"),
                    ("later", "true"),
                    ("status", "'blocked'"),
                    ("expires_at", "now() - interval '1 second'"),
                    ("cancel_requested_at", "now()"),
                ]
            )
            columns[name] = value
        row = conn.execute(
            f"INSERT INTO holdfast.job (created_at, payload, {', '.join(columns)})"
            f" VALUES (now(), '{{}}', {', '.join(columns.values())}) RETURNING id".encode()
        ).fetchone()
        assert row is not None
        conn.execute("UPDATE holdfast.job SET order_seq = id WHERE id = %s AND order_key IS NOT NULL", row)


@pytest.mark.nightly(daily=["0-0.0", "1-0.05", "2-0.3"])
@pytest.mark.parametrize("special", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("part", range(4))
def test_it_takes_what_the_whole_claim_takes_next(connect: Connect, special: float, part: int) -> None:
    took = 0
    claiming = Claiming(connect())
    for seed in range(15):
        random = Random(1000 * part + seed)
        claiming.conn.execute("TRUNCATE holdfast.job")
        claiming.floors.drop()
        for _ in range(3):
            fill(claiming.conn, random, random.randint(4, 16), special=special)
            claiming.whole(random.randint(1, 8), keep=True)
        limit = random.randint(1, 12)
        plain, whole = claiming.plain(limit), claiming.whole(limit)
        first, second = (
            sorted((one._replace(token=0, waited=0) for one in jobs), key=_ORDER) for jobs in (plain, whole)
        )
        assert first == second[: len(first)], seed
        took += len(plain)
    assert special or took, "it never decides"


def taken(connect: Connect, change: str) -> list[int]:
    """Return what it takes of two jobs after a change of the database, by their places."""
    claiming = Claiming(connect())
    claiming.conn.execute("TRUNCATE holdfast.job, holdfast.queue")
    enqueue(claiming.conn, job())
    assert len(claiming.whole(1, keep=True)) == 1
    ids = enqueue(claiming.conn, job(), job())
    if change:
        claiming.conn.execute(change.replace("ID", str(ids[0])).encode())
    return [ids.index(one.id) for one in claiming.plain(2)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE holdfast.job SET order_key = 'a', order_seq = id WHERE id = ID",
        "UPDATE holdfast.job SET limits = '{a}' WHERE id = ID",
        "UPDATE holdfast.job SET later = true WHERE id = ID",
        "UPDATE holdfast.job SET priority = 4 WHERE id = ID",
        "UPDATE holdfast.job SET kind = 'm' WHERE id = ID",
        "INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)",
    ],
)
def test_it_takes_nothing_where_more_has_to_be_decided(connect: Connect, change: str) -> None:
    assert taken(connect, "") == [0, 1]
    assert taken(connect, change) == []


def test_a_suspect_is_passed_over_and_an_expired_job_is_marked(connect: Connect) -> None:
    assert taken(connect, "UPDATE holdfast.job SET suspect = 0 WHERE id = ID") == [1]
    claiming = Claiming(connect())
    enqueue(claiming.conn, job())
    claiming.whole(1, keep=True)
    enqueue(claiming.conn, job())
    claiming.conn.execute("UPDATE holdfast.job SET expires_at = now() WHERE status = 'pending'")
    assert [one.expired for one in claiming.plain(1)] == [True]


ALL, ONE = (8, 0), (1, 4)
QUEUE = "hashtext('holdfast.claim default')"


def shards(claiming: Claiming, windows: tuple[int, int]) -> set[int]:
    return {one.id & 63 for one in claiming.plain(128, windows)}


def test_it_locks_the_windows_that_it_scans(connect: Connect) -> None:
    claiming, other = Claiming(connect()), connect()
    enqueue(claiming.conn, job())
    claiming.whole(1, keep=True)
    enqueue(claiming.conn, *[job() for _ in range(128)])
    every, window = set(range(64)), {place: set(range(8 * place, 8 * place + 8)) for place in range(8)}
    assert shards(claiming, ALL) == every
    assert shards(claiming, ONE) == window[4]
    with other.transaction():
        # As a claim that scans the windows 4 to 7 locks them.
        other.execute(f"SELECT pg_advisory_xact_lock_shared({QUEUE}, 8)".encode())
        other.execute(f"SELECT pg_advisory_xact_lock({QUEUE}, w) FROM generate_series(4, 7) AS w".encode())
        assert shards(claiming, ALL) == set(), "another claims too: the whole claim learns that"
        assert shards(claiming, ONE) == window[0], "the next that is free"
        other.execute(f"SELECT pg_advisory_xact_lock({QUEUE}, w) FROM generate_series(0, 3) AS w".encode())
        assert shards(claiming, ONE) == every, "none is free: what others have locked is passed over"
    with other.transaction():
        other.execute(f"SELECT pg_advisory_xact_lock({QUEUE}, 8)".encode())
        assert shards(claiming, ALL) == set()
        assert shards(claiming, ONE) == every


def test_two_claims_of_one_window_do_not_meet(connect: Connect) -> None:
    claiming, other = Claiming(connect()), Claiming(connect())
    enqueue(claiming.conn, job())
    for each in (claiming, other):
        each.whole(1, keep=True)
    other.floors = claiming.floors
    enqueue(claiming.conn, *[job() for _ in range(128)])
    with claiming.conn.transaction():
        first = claiming.plain(4, ONE, keep=True)
        second = other.plain(4, ONE, keep=True)
        assert {one.id & 63 for one in first} <= set(range(32, 40))
        assert {one.id & 63 for one in second} <= set(range(40, 48))
    third = other.plain(12, ONE, keep=True)
    assert {one.id & 63 for one in third} <= set(range(32, 40))
    assert not {one.id for one in third} & {one.id for one in first}
