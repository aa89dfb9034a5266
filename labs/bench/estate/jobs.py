"""Jobs: what has ended within two weeks, what failed within three months, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.ground import progress

if TYPE_CHECKING:
    import psycopg

RARE = "estate.rare"
KINDS, QUEUES, CODES = 50, 10, 12
HISTORY_SPAN = "interval '13 days 12 hours'"
FAILED_SPAN = "interval '89 days'"
PENDING_SPAN = "interval '2 days'"
CHUNK = 500_000
# Endings are not in the order of ids: within so many neighbours they are mixed.
MIXED = 1_024


def fill_jobs(conn: psycopg.Connection[Any], *, history: int, pending: int, failed: int) -> None:
    for begun in range(0, history, CHUNK):
        _history(conn, begun, min(begun + CHUNK, history), history)
        if begun:
            progress(f"filling: {begun:,} of {history:,} in history")
    _long_chain(conn)
    _rare(conn)
    _failed(conn, failed)
    _live(conn, pending)
    _blocked(conn, max(200, pending // 1_000))


def _payload(number: str) -> str:
    return f"""('{{"customer":' || {number} % 99991 || ',"document":"' || md5({number}::text) || '","note":"'
        || repeat('abcdef ', 8) || '"}}')::json"""


def _kind(number: str) -> str:
    return f"'estate.kind' || ({number}) % {KINDS}"


def _queue(number: str) -> str:
    return f"'queue' || ({number}) % {QUEUES}"


def _history(conn: psycopg.Connection[Any], begun: int, until: int, history: int) -> None:
    """One in a hundred was called off, one in a hundred is followed by the next, one in ten has a key."""
    step = f"({HISTORY_SPAN} / {history})"
    born = f"now() - {HISTORY_SPAN} - {MIXED} * {step} + s * {step}"
    conn.execute(
        f"""
        INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt,
            max_attempts, priority, chain_id, queue, kind, payload, order_key, unique_key, next_id)
        SELECT estate.id_at({born}, 0), {born}, {born}, now() - {HISTORY_SPAN} + (n + 0.5) * {step}, 1 + n % 30,
            (CASE WHEN s % 100 = 50 THEN 'cancelled' ELSE 'completed' END)::holdfast.status, 1, 3, 5,
            CASE WHEN s % 100 = 1 THEN estate.id_at({born} - {step}, 0) END, {_queue("s")}, {_kind("s")},
            {_payload("s")}, CASE WHEN s % 10 = 3 THEN 'customer ' || s % 5003 END,
            CASE WHEN s % 50 = 7 THEN 'once ' || s END,
            CASE WHEN s % 100 = 0 THEN estate.id_at({born} + {step}, 0) END
        FROM (SELECT n, n / {MIXED} * {MIXED} + n % {MIXED} * 393 % {MIXED} AS s
              FROM generate_series({begun}, {until - 1}) AS n) AS g
        """.encode()
    )


def _long_chain(conn: psycopg.Connection[Any]) -> None:
    """Fill a chain that goes on and on: a job a minute."""
    born = f"now() - {HISTORY_SPAN} + n * interval '1 minute'"
    conn.execute(
        f"""
        INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt,
            max_attempts, priority, chain_id, queue, kind, payload, next_id)
        SELECT estate.id_at({born}, 3), {born}, {born}, {born} + interval '1 second', 1, 'completed', 1, 3, 5,
            CASE WHEN n > 0 THEN estate.id_at(now() - {HISTORY_SPAN}, 3) END, 'queue0', 'estate.poll', {_payload("n")},
            CASE WHEN n < 19000 THEN estate.id_at({born} + interval '1 minute', 3) END
        FROM generate_series(0, 19000) AS n
        """.encode()
    )


def _rare(conn: psycopg.Connection[Any]) -> None:
    """Fill a few jobs of a kind that is seldom, ten days ago."""
    born = "now() - interval '10 days' + n * interval '61 seconds'"
    conn.execute(
        f"""
        INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt,
            max_attempts, priority, queue, kind, payload)
        SELECT estate.id_at({born}, 3), {born}, {born}, {born} + interval '1 second', 1, 'completed', 1, 3, 5, 'queue0',
            '{RARE}', {_payload("n")}
        FROM generate_series(1, 3) AS n
        """.encode()
    )


def _failed(conn: psycopg.Connection[Any], failed: int) -> None:
    """After three attempts each; one in ten has been replayed."""
    born = f"now() - {FAILED_SPAN} + n * ({FAILED_SPAN} / {failed}) - interval '1 minute'"
    code = f"'errors.code' || n / 13 % {CODES}"
    conn.execute(
        f"""
        INSERT INTO holdfast.job_failed (id, created_at, available_at, finished_at, worker_id, status, attempt,
            max_attempts, priority, queue, kind, payload, last_error_code, last_error)
        SELECT estate.id_at({born}, 1), {born}, {born}, {born} + interval '40 seconds', 1 + n % 30, 'failed', 3, 3, 5,
            {_queue("n * 7")}, {_kind("n * 7")}, {_payload("n")}, {code}, 'it broke: ' || repeat('because ', 20)
        FROM generate_series(0, {failed - 1}) AS n
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code, error)
        SELECT estate.id_at({born}, 1), {born} + a * interval '12 seconds', 1 + n % 30, n,
            (CASE WHEN a = 3 THEN 'failed' ELSE 'retry' END)::holdfast.outcome, a, {code},
            'it broke: ' || repeat('because ', 20)
        FROM generate_series(0, {failed - 1}) AS n, generate_series(1, 3) AS a
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.replay (job_id, nth, replay_id, replayed_at)
        SELECT estate.id_at({born}, 1), 1, estate.id_at({born} + interval '30 seconds', 1),
            {born} + interval '50 seconds'
        FROM generate_series(0, {failed - 1}, 10) AS n
        """.encode()
    )


def _live(conn: psycopg.Connection[Any], pending: int) -> None:
    """Half of what waits is for later; one in a thousand runs."""
    born = f"now() - {PENDING_SPAN} + n * ({PENDING_SPAN} / {pending})"
    runs = "n % 1000 = 999"
    for begun in range(0, pending, CHUNK):
        conn.execute(
            f"""
            INSERT INTO holdfast.job (id, created_at, available_at, status, attempt, locked_by, lock_token,
                locked_until, priority, shard, queue, kind, payload, order_key, order_seq)
            SELECT estate.id_at({born}, 2), {born},
                {born} + CASE WHEN n % 2 = 0 THEN interval '0' ELSE interval '3 days' END,
                (CASE WHEN {runs} THEN 'processing' ELSE 'pending' END)::holdfast.status, ({runs})::integer,
                CASE WHEN {runs} THEN 1 + n % 30 END, CASE WHEN {runs} THEN n END,
                CASE WHEN {runs} THEN now() + interval '1 hour' END, 1 + n % 9, n % 64, {_queue("n")}, {_kind("n")},
                {_payload("n")}, CASE WHEN n % 20 = 3 THEN 'waits ' || n END,
                CASE WHEN n % 20 = 3 THEN estate.id_at({born}, 2) END
            FROM generate_series({begun}, {min(begun + CHUNK, pending) - 1}) AS n
            """.encode()
        )


def _blocked(conn: psycopg.Connection[Any], blocked: int) -> None:
    """Every second one waits for the same chain, the others for one each."""
    born = "now() - interval '1 hour' + n * interval '100 milliseconds'"
    waits = "estate.id_at(now() - interval '1 day' + n % 2 * n * interval '1 second', 3)"
    conn.execute(
        f"""
        INSERT INTO holdfast.job (id, created_at, available_at, status, shard, queue, kind, payload, blockers_left)
        SELECT estate.id_at({born}, 3), {born}, {born}, 'blocked', n % 64, 'queue0', 'estate.blocked', {_payload("n")},
            1 FROM generate_series(1, {blocked}) AS n
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.job (id, created_at, available_at, shard, queue, kind, payload, awaited)
        SELECT DISTINCT ON (1) {waits}, now() - interval '1 day', now() + interval '1 day', n % 64, 'queue1',
            'estate.awaited', {_payload("1")}, true FROM generate_series(1, {blocked}) AS n
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.blocker (job_id, chain_id, ordinal)
        SELECT estate.id_at({born}, 3), {waits}, 0 FROM generate_series(1, {blocked}) AS n
        """.encode()
    )
