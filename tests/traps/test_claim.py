"""PROTOCOL, section 1: the claim touches what it takes, takes what it was asked for, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._model.work import Lease
from holdfast._store.claim import claim_jobs
from holdfast._store.lease import ClaimAnswer
from tests.kit.mutation import forget_settings, let_claims_take_their_time, open_trap
from tests.kit.plans import buffers, explained, table_scans
from tests.kit.workers import COMPLETED, EVERYTHING, RETRIED, Worker, enqueue, fill, job, number

if TYPE_CHECKING:
    from psycopg import Connection

    from holdfast._store.statement import Statement
    from tests.kit.workers import Connect

SLOTS = 5
ALIEN = 20_000


def claim(worker: Worker, slots: int = SLOTS) -> Statement[Any]:
    return claim_jobs(worker.id, {"default": slots}, worker.leases, reach=EVERYTHING)


@pytest.mark.parametrize(
    "alien",
    [
        {"kind": "other"},
        {"queue": "other"},
        {"available_at": "now() + interval '1 day' + n * interval '1 second'"},
    ],
    ids=["kinds", "queues", "tomorrow"],
)
def test_what_is_not_served_is_not_read(connect: Connect, alien: dict[str, str]) -> None:
    conn = connect()
    worker = Worker(conn)
    fill(conn, 100, available_at="now() - interval '1 second'")
    alone = buffers(conn, claim(worker))
    fill(conn, ALIEN, **alien)
    assert buffers(conn, claim(worker)) <= 1.5 * alone

    # The trap: an index that begins with the order of the claim and leaves the rest to a filter.
    conn.execute("DROP INDEX holdfast.job_pending")
    columns = "available_at, priority, id" if "available_at" not in alien else "priority, id"
    conn.execute(f"CREATE INDEX ON holdfast.job ({columns}) WHERE status = 'pending' AND suspect IS NULL".encode())
    assert buffers(conn, claim(worker)) > 3 * alone


def test_a_subquery_under_a_nested_loop_takes_too_many(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    fill(conn, 200)
    conn.execute("ANALYZE holdfast.job")
    for setting in ("hashjoin", "mergejoin", "material", "hashagg", "sort", "memoize"):
        conn.execute(f"SET enable_{setting} = off".encode())
    assert len(worker.claim(1)) == 1
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE status = 'processing'") == 1

    naive = conn.execute(
        "UPDATE holdfast.job SET status = 'processing' WHERE id IN "
        "(SELECT id FROM holdfast.job WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    assert naive.rowcount > 1


def test_a_join_with_the_chosen_rows_scans_the_table(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    fill(conn, 2_000)
    conn.execute("ANALYZE holdfast.job")
    assert table_scans(conn, "holdfast.job", lambda: worker.claim(500)) == 0
    naive = (
        "WITH due AS MATERIALIZED (SELECT id FROM holdfast.job WHERE status = 'pending' AND queue = 'default' "
        "AND kind = 'k' AND priority = 5 ORDER BY available_at, id LIMIT 500 FOR UPDATE SKIP LOCKED) "
        "UPDATE holdfast.job j SET status = 'processing' FROM due WHERE j.id = due.id"
    )
    assert table_scans(conn, "holdfast.job", lambda: conn.execute(naive)) > 0


def test_a_plan_made_while_the_table_was_empty(connect: Connect) -> None:
    def scans() -> int:
        """Return the scans of a claim that was planned on an empty table, when jobs have arrived since."""
        conn = connect()
        conn.execute("TRUNCATE holdfast.job")
        conn.execute("ANALYZE holdfast.job")
        worker = Worker(conn)
        assert worker.claim() == []
        fill(conn, 5_000)
        return table_scans(conn, "holdfast.job", lambda: worker.claim(10))

    assert scans() == 0
    forget_settings(connect(), "claim_jobs", "enable_seqscan", "enable_bitmapscan")
    assert scans() > 0


def compiled(conn: Connection[Any]) -> bool:
    """Whether a claim made PostgreSQL compile something."""
    worker = Worker(conn)
    with explained(conn) as plans:
        worker.claim(1)
    assert any("holdfast.job j" in plan for plan in plans)
    return any("JIT:" in plan for plan in plans if "holdfast.job j" in plan)


def test_a_claim_is_never_compiled(connect: Connect) -> None:
    conn = connect()
    if not number(conn, "SELECT pg_jit_available()"):
        pytest.skip("this PostgreSQL was built without JIT")
    fill(conn, 100)
    for setting in ("jit_above_cost", "jit_optimize_above_cost", "jit_inline_above_cost"):
        conn.execute(f"SET {setting} = 0".encode())
    conn.execute("SET jit = on")
    assert not compiled(conn)
    forget_settings(conn, "claim_jobs", "jit")
    assert compiled(conn)


def test_a_volatile_clock_bounds_no_index(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    fill(conn, SLOTS - 2)
    fill(conn, ALIEN, available_at="now() + interval '1 day' + n * interval '1 second'")
    assert buffers(conn, claim(worker)) < 100
    open_trap(
        conn,
        "claim_jobs",
        (
            "(j.available_at, j.id) >= (due_times[1], due_ids[1]) AND j.available_at <= now()",
            "(j.available_at, j.id) >= (due_times[1], due_ids[1]) AND j.available_at <= clock_timestamp()",
        ),
    )
    assert buffers(conn, claim(worker)) > 400


def test_a_batch_is_as_large_as_asked_for(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn, *(f"k{n}" for n in range(10)))
    let_claims_take_their_time(conn)
    for n in range(10):
        fill(conn, 100, kind=f"k{n}")
    assert len(worker.claim(500)) == 500
    fill(conn, 2_000, kind="k0")
    assert len(worker.claim(500)) == 500
    # The trap: each kind is looked at for its even share, whatever the kinds in fact waiting.
    conn.execute("TRUNCATE holdfast.job")
    fill(conn, 2_000, kind="k0")
    for n in range(1, 10):
        fill(conn, 1, kind=f"k{n}")
    open_trap(conn, "claim_jobs", ("EXIT WHEN need <= 0 OR (", "EXIT WHEN true OR ("))
    assert len(worker.claim(500)) < 100


def as_another(conn: Connection[Any], thief: Worker, victim: Worker, deed: str) -> object:
    """Let `thief` write with the id and token of a job that `victim` has claimed; return the answer."""
    (stolen,) = victim.claim(1)
    match deed:
        case "renew_leases":
            return thief.renew([stolen], Lease(600)).get(stolen.id, "renewed")
        case "complete_jobs":
            return thief.end([stolen], COMPLETED)[stolen.id]
        case _:
            return thief.end([stolen], RETRIED)[stolen.id]


@pytest.mark.parametrize(
    ("deed", "check", "opened"),
    [
        ("renew_leases", " AND j.locked_by = worker ORDER BY j.id FOR", " ORDER BY j.id FOR"),
        ("complete_jobs", "tokens[1] AND j.locked_by = worker", "tokens[1]"),
        ("settle_batch", " AND j.locked_by = g.holder", ""),
    ],
)
def test_a_token_alone_is_no_fence(connect: Connect, deed: str, check: str, opened: str) -> None:
    conn = connect()
    thief, victim = Worker(conn), Worker(conn)
    enqueue(conn, job(), job())
    assert as_another(conn, thief, victim, deed) is ClaimAnswer.taken_by_another_worker
    open_trap(conn, deed, (check, opened))
    assert as_another(conn, thief, victim, deed) in {"renewed", "completed", "pending"}
