"""How much of the shared lock table a user's transaction takes: little, however many partitions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.workers import Worker, enqueue, job, number

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Connect

# The first call of a session plans its statements, and locks what it plans.
MOST = 25

MONTHS = """
DO $$
DECLARE
    families text[] := ARRAY(
        SELECT left(c.relname, -5) FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid
        WHERE c.relnamespace = 'holdfast'::regnamespace AND p.partstrat = 'r');
    family text;
    part text;
    day date;
BEGIN
    FOREACH family IN ARRAY families LOOP
        FOR n IN -60..30 LOOP
            day := (now() AT TIME ZONE 'UTC')::date + n;
            part := family || to_char(day, '_YYYYMMDD');
            CONTINUE WHEN to_regclass('holdfast.' || part) IS NOT NULL;
            EXECUTE format('CREATE TABLE holdfast.%I PARTITION OF holdfast.%I FOR VALUES FROM (%L) TO (%L)',
                part, family || '_days', day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
            COMMIT;
        END LOOP;
    END LOOP;
END $$"""

ENDED = """
INSERT INTO holdfast.{}
    (id, created_at, available_at, finished_at, status, attempt, max_attempts, priority, queue, kind)
SELECT %s, at, at, at, %s, 1, 3, 5, 'default', 'a' FROM (SELECT now() - %s * interval '1 day' AS at) AS ended"""

ENDED_AT = "SELECT finished_at FROM holdfast.job_failed WHERE id = -49"


def test_no_call_in_a_users_transaction_takes_many_entries_of_the_shared_lock_table(connect: Connect) -> None:
    conn, other = connect(), connect()
    conn.execute(MONTHS)
    worker = Worker(other)
    (today,) = enqueue(other, job())
    worker.end(worker.claim())
    for table, status, number_of_days in (("job_history", "completed", 50), ("job_failed", "failed", 49)):
        conn.execute(ENDED.format(table).encode(), [-number_of_days, status, number_of_days])
    (running,) = enqueue(other, job())
    ((_, token),) = [(claim.id, claim.token) for claim in worker.claim()]
    (waiting, awaited) = enqueue(other, job(), job())
    calls = {
        "enqueue": "holdfast.enqueue('a')",
        "enqueue, unique": "holdfast.enqueue('a', unique_key => 'u')",
        "enqueue, within a window": "holdfast.enqueue('a', unique_key => 'u', unique_window => '1 day')",
        "enqueue, after a chain that lives": f"holdfast.enqueue('a', blockers => '{{{awaited}}}')",
        "enqueue, after one that ended today": f"holdfast.enqueue('a', blockers => '{{{today}}}')",
        "enqueue, after one that ended long ago": "holdfast.enqueue('a', blockers => '{-50}')",
        "enqueue_jobs": 'holdfast.enqueue_jobs(\'[{"kind": "a"}, {"kind": "b"}]\')',
        "enqueue_jobs, all of it": 'holdfast.enqueue_jobs(\'[{"kind": "a", "unique_key": "u", "unique_window_ms": 9}, '
        f'{{"kind": "b", "unique_key": "u", "blockers": [-50, {today}]}}]\')',
        "enqueue_group": 'holdfast.enqueue_group(\'[{"kind": "a"}]\', \'{"kind": "b"}\', true)',
        "publish": "holdfast.publish('a', '{}')",
        "publish_events": 'holdfast.publish_events(\'[{"topic": "a", "payload": 1}]\')',
        "receive": "holdfast.receive('a', 'b')",
        "complete_job": f"holdfast.complete_job({running}, {token}, {worker.id})",
        "complete_job, going on": f"holdfast.complete_job({running}, {token}, {worker.id}, '1', '{{\"kind\": \"a\"}}')",
        "complete_job, lost today": f"holdfast.complete_job({today}, 1, {worker.id})",
        "complete_job, lost long ago": f"holdfast.complete_job(-50, 1, {worker.id})",
        "complete_batch": f'holdfast.complete_batch({worker.id}, \'[{{"id": {running}, "token": {token}}}]\')',
        "complete_chain": f"holdfast.complete_chain({waiting}, '1')",
        "complete_chain, ended long ago": "holdfast.complete_chain(-50, '1')",
        "cancel_job": f"holdfast.cancel_job({waiting})",
        "delete_job": f"holdfast.delete_job({waiting})",
        "reschedule_job": f"holdfast.reschedule_job({waiting}, now())",
        "get_job": f"holdfast.get_job({waiting})",
        "get_job, ended today": f"holdfast.get_job({today})",
        "get_job, ended long ago": "holdfast.get_job(-50)",
        "get_job, failed long ago": "holdfast.get_job(-49)",
        "get_job, never was": "holdfast.get_job(1000000000)",
        "get_result": f"holdfast.get_result({waiting})",
        "get_result, ended today": f"holdfast.get_result({today})",
        "get_result, failed long ago": "holdfast.get_result(-49)",
        "get_result, never was": "holdfast.get_result(1000000000)",
        "retry_job": "holdfast.retry_job(-49)",
        "retry_job, never was": "holdfast.retry_job(1000000000)",
        "replay_job": "holdfast.replay_job(-49)",
        "replay_job, when it ended is known": f"holdfast.replay_job(-49, '{value(conn, ENDED_AT)}')",
        "send_message": f"holdfast.send_message({waiting}, 'm', '1')",
        "send_message, by its unique key": "holdfast.send_message(NULL, 'm', '1', NULL, 'a', 'u')",
        "send_message, ended today": f"holdfast.send_message({today}, 'm', '1')",
        "send_message, ended long ago": "holdfast.send_message(-50, 'm', '1')",
        "send_message, never was": "holdfast.send_message(1000000000, 'm', '1')",
        "set_weight": "holdfast.set_weight('t', 2)",
        "chain_ends": f"holdfast.chain_ends('{{{today}, -50, -49, 1000000000}}')",
    }
    missing = set(producing(conn)) - {name.partition(",")[0] for name in calls}
    assert missing == set()
    for name, call in calls.items():
        if name.startswith("replay_job"):
            with conn.transaction(force_rollback=True):
                made = value(conn, f"SELECT {call}")
                assert value(conn, f"SELECT replay_of FROM holdfast.job WHERE id = {made or 0}") == -49
    taken = {name: locks(conn, other, f"SELECT * FROM {call}") for name, call in calls.items()}
    assert {name: count for name, count in taken.items() if count > MOST} == {}
    # The trap: a look by id over a family locks all of it.
    assert locks(conn, other, "SELECT FROM holdfast.job_history WHERE id = 1") > 8 * MOST


def producing(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the functions that a producer may call."""
    rows = conn.execute(
        "SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace "
        "AND has_function_privilege('holdfast_producer', p.oid, 'EXECUTE')"
    )
    return [row[0] for row in rows]


def value(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def locks(conn: psycopg.Connection[Any], other: psycopg.Connection[Any], query: str) -> int:
    """Return how many entries the transaction of a query has in the lock table that all sessions share."""
    with conn.transaction(force_rollback=True):
        conn.execute(query.encode())
        held = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT fastpath"
        return int(number(other, held, conn.info.backend_pid))
