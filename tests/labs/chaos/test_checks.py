"""Every check of the oracle is silent about a good run, and notices what it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import TypeAdapter

from labs import chaos
from labs.chaos import checks
from labs.chaos.evidence import Evidence, gather
from labs.chaos.fleet import Death
from labs.chaos.oracle import judge
from labs.chaos.prober import Probe
from labs.chaos.recovery import Recovery
from labs.chaos.typed import Receipt, receipt

if TYPE_CHECKING:
    from collections.abc import Iterator

# Workers, and one job of each workload: plain, ledger, two of a key, a chain of three, what comes after it, a probe;
# and two events of a key, with their jobs.
GOOD = """
    INSERT INTO holdfast.worker (name) VALUES ('r1.1'), ('r2.1');
    INSERT INTO chaos.promise (job, batch, n, workload, key, expected)
    SELECT job, batch, n, workload, key, 'completed' FROM (VALUES
        (1, 1, 1, 'plain', NULL), (2, 1, 2, 'ledger', NULL), (3, 2, 1, 'keyed', 'k'), (4, 2, 2, 'keyed', 'k'),
        (5, 3, 1, 'chain', NULL), (8, 3, 2, 'join', '5'), (9, 4, 0, 'probe', NULL), (12, 6, 3, 'story', NULL)
    ) AS p (job, batch, n, workload, key);
    INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt,
        max_attempts, priority, chain_id, next_id, queue, kind, payload, result, order_key)
    SELECT id, now(), now(), now(), 1, 'completed', 1,
        3, 5, chain_id, next_id, 'q', kind, payload::json, result::json, key
    FROM (VALUES
        (1, 'plain', NULL::bigint, NULL::bigint, NULL, '{"attempt": 1, "token": 11, "worker": "r1.1"}', NULL),
        (2, 'ledger', NULL, NULL, NULL, '{"attempt": 1, "token": 12, "worker": "r1.1"}', NULL),
        (3, 'keyed', NULL, NULL, NULL, '{"attempt": 1, "token": 13, "worker": "r1.1"}', 'k'),
        (4, 'keyed', NULL, NULL, NULL, '{"attempt": 1, "token": 14, "worker": "r1.1"}', 'k'),
        (5, 'step', NULL, 6, '{"left": 2}', NULL, NULL),
        (6, 'step', 5, 7, '{"left": 1}', NULL, NULL),
        (7, 'step', 5, NULL, '{"left": 0}', '{"attempt": 1, "token": 17, "worker": "r1.1"}', NULL),
        (8, 'join', NULL, NULL, NULL, '[5]', NULL),
        (9, 'probe', NULL, NULL, NULL, '{"attempt": 1, "token": 19, "worker": "r1.1"}', NULL),
        (10, 'received', NULL, NULL, '{"event": {"id": 101}}', '{"attempt": 1, "token": 20, "worker": "r1.1"}', NULL),
        (11, 'received', NULL, NULL, '{"event": {"id": 102}}', '{"attempt": 1, "token": 21, "worker": "r1.1"}', NULL),
        (12, 'story', NULL, NULL, NULL, '[70, 71, 72, 73, 74]', NULL)
    ) AS j (id, kind, chain_id, next_id, payload, result, key);
    INSERT INTO chaos.ledger (job, amount, token, attempt, worker) VALUES
        (2, 7, 12, 1, 'r1.1'), (2, -7, 12, 1, 'r1.1'), (5, 0, 15, 1, 'r1.1'),
        (10, 101, 20, 1, 'r1.1'), (11, 102, 21, 1, 'r1.1');
    INSERT INTO chaos.entry VALUES (12, 0, 70), (12, 1, 71), (12, 2, 72), (12, 3, 73), (12, 4, 74);
    INSERT INTO chaos.published (event, batch, key, n) VALUES (101, 5, 'a', 1), (102, 5, 'a', 2);
    INSERT INTO chaos.arrival (place, event, key, n) VALUES (0, 101, 'a', 1), (1, 102, 'a', 2);
    INSERT INTO chaos.handed (event, at, worker) VALUES (101, 1, 'r1.1'), (102, 2, 'r1.1');
    INSERT INTO holdfast.position (subscription_id, partition, seq, lock_token, seen, seen_id, seen_top, seen_xid)
    VALUES (1, 0, 1, NULL, '9:9:', 0, 0, '9'), (1, 0, 2, 8, '9:9:', 0, 0, '9'),
        (1, 0, 3, 8, '12:12:', 102, 102, '12'), (1, 0, 4, 30, '12:12:', 102, 102, '12');
    INSERT INTO chaos.singleton (run, worker, what, at) VALUES
        ('a', 'r1.1', 'begun', '2026-01-01 00:00:00'), ('a', 'r1.1', 'ended', '2026-01-01 00:00:01'),
        ('b', 'r2.1', 'begun', '2026-01-01 00:00:02'), ('b', 'r2.1', 'ended', '2026-01-01 00:00:03');
"""
# Of jobs 1 to 12, one after the other, a second each.
RUNS = {job: (1, 10 + job, job * 10**9, job * 10**9 + 9 * 10**8) for job in range(1, 13)}

TAMPERED = {
    "steps doubled or changed": """
        UPDATE chaos.entry SET number = 75 WHERE place = 4;
    """,
    "more at once than the limit": """
        INSERT INTO holdfast.limit_rule (name, concurrency) VALUES ('one', 1);
        INSERT INTO chaos.place (key, job, change) VALUES ('one:a', 1, 1), ('one:b', 2, 1), ('one:a', 3, 1)""",
    "more starts than the rate allows": """
        INSERT INTO holdfast.limit_rule (name, starts, period_ms, burst) VALUES ('slow', 5, 1000, 2);
        INSERT INTO chaos.place (key, job, change) SELECT 'slow', n, 1 FROM generate_series(1, 8) AS n""",
    "stranded at a limit": """
        INSERT INTO holdfast.run (started_at, runner, counts) VALUES (now(), 'maintenance', '{"limits_mended": 1}')""",
    "a tenant starved": """
        INSERT INTO chaos.promise (job, batch, n, workload, key, expected)
        SELECT 1000 + n, 9, n, 'tenant', CASE WHEN n < 200 THEN 'big' ELSE 'small' END, 'completed'
        FROM generate_series(1, 200) AS n;
        INSERT INTO chaos.run (job, attempt, token, begun, worker)
        SELECT 1000 + n, 1, 1000 + n, n, 'r1.1' FROM generate_series(1, 200) AS n""",
    "lost": "DELETE FROM holdfast.job_history WHERE id = 1",
    "never promised": "DELETE FROM chaos.promise WHERE job = 1",
    "wrong outcome": "UPDATE holdfast.job_history SET status = 'cancelled' WHERE id = 1",
    "results changed": "UPDATE chaos.promise SET workload = 'typed' WHERE job = 1",
    "failed for another reason": """
        UPDATE chaos.promise SET workload = 'trouble', key = 'ValueError', expected = 'failed' WHERE job = 1;
        INSERT INTO holdfast.job_failed SELECT * FROM holdfast.job_history WHERE id = 1;
        DELETE FROM holdfast.job_history WHERE id = 1;
        UPDATE holdfast.job_failed SET status = 'failed', last_error_code = 'TypeError'""",
    "innocent jobs harmed": """
        UPDATE holdfast.job_history SET kind = 'trouble.poison' WHERE id = 9;
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code)
        VALUES (9, now(), 1, 3, 'lost', 1, 'lease_expired'), (8, now(), 1, 3, 'lost', 1, 'lease_expired'),
            (9, now(), 2, 4, 'lost', 2, 'lease_expired'), (8, now(), 2, 4, 'lost', 2, 'lease_expired')""",
    "dead letters that a worker could read": """
        UPDATE holdfast.worker SET versions = '{"plain": 2}', started_at = now() - interval '1 minute',
            heartbeat_at = now() + interval '1 second' WHERE name = 'r2.1';
        UPDATE chaos.promise SET workload = 'version', expected = 'either' WHERE job = 1;
        UPDATE holdfast.job_history SET payload_version = 2 WHERE id = 1;
        INSERT INTO holdfast.job_failed SELECT * FROM holdfast.job_history WHERE id = 1;
        DELETE FROM holdfast.job_history WHERE id = 1;
        UPDATE holdfast.job_failed SET status = 'failed';
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        VALUES (1, now(), 1, 11, 'failed', 1)""",
    "another's jobs taken": """
        UPDATE chaos.promise SET workload = 'held' WHERE job = 8;
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        VALUES (8, now(), 1, 3, 'released', 1)""",
    "ended twice": """
        INSERT INTO holdfast.job_history
        SELECT (jsonb_populate_record(h, jsonb_build_object('finished_at', finished_at + interval '1 second'))).*
        FROM holdfast.job_history h WHERE id = 1""",
    "effects doubled or missing": "DELETE FROM chaos.ledger WHERE amount = 7",
    "stale writes accepted": "UPDATE holdfast.job_history SET worker_id = 2 WHERE id = 1",
    "keys out of order": "UPDATE chaos.promise SET n = 3 - n WHERE workload = 'keyed'",
    "blocked for ever": """
        INSERT INTO holdfast.job (id, created_at, available_at, queue, kind, status)
        VALUES (100, now(), now(), 'q', 'plain', 'blocked')""",
    "chains broken": "DELETE FROM holdfast.job_history WHERE id = 7",
    "blockers ignored": "UPDATE holdfast.job_history SET result = '[6]' WHERE id = 8",
    "singletons overlapping": "UPDATE chaos.singleton SET at = at - interval '1.5 seconds' WHERE run = 'b'",
    "attempts miscounted": "UPDATE holdfast.job_history SET attempt = 0 WHERE id = 8",
    "rescheduled into the past": """
        UPDATE holdfast.job_history SET available_at = finished_at - interval '1 second' WHERE id = 8;
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        SELECT id, finished_at, 1, 10, 'released', 1 FROM holdfast.job_history WHERE id = 8""",
    "left behind by a stopped worker": """
        UPDATE holdfast.worker SET stopped_at = now() - interval '1 second', stop_reason = 'stopped';
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        VALUES (8, now(), 1, 10, 'lost', 1)""",
    "events lost": "DELETE FROM chaos.arrival WHERE event = 101",
    "events made up": "DELETE FROM chaos.published WHERE event = 101",
    "events out of order": "UPDATE chaos.arrival SET place = 1 - place",
    "events without their job": "DELETE FROM holdfast.job_history WHERE id = 10",
    "effects of events doubled or missing": "INSERT INTO chaos.ledger SELECT * FROM chaos.ledger WHERE job = 10",
    "stale positions accepted": "UPDATE holdfast.position SET lock_token = 7 WHERE seq = 4",
    "acknowledged and forgotten": "DELETE FROM chaos.promise WHERE batch = 4",
}
ATTEMPT = "INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)"
# The same, seen another way: a second query of a check.
ALSO = [
    ("effects doubled or missing", "INSERT INTO chaos.ledger SELECT * FROM chaos.ledger WHERE job = 5"),
    ("effects doubled or missing", "UPDATE chaos.ledger SET job = 1 WHERE job = 5"),
    ("stale writes accepted", "UPDATE chaos.ledger SET token = 3 WHERE job = 5"),
    (
        "dead letters that a worker could read",
        """UPDATE chaos.promise SET workload = 'version' WHERE job = 1;
        UPDATE holdfast.job_history SET payload_version = 2 WHERE id = 1""",
    ),
    ("another's jobs taken", "UPDATE chaos.promise SET workload = 'held' WHERE job = 1"),
    ("events made up", "UPDATE chaos.arrival SET n = 3 WHERE event = 102"),
    (
        "events without their job",
        """UPDATE holdfast.job_history SET payload = '{"event": {"id": 101}}' WHERE id = 11""",
    ),
    ("effects of events doubled or missing", "DELETE FROM chaos.ledger WHERE job = 10"),
    ("stale positions accepted", "UPDATE holdfast.position SET seen_id = 101 WHERE seq = 4"),
    ("acknowledged and forgotten", "DELETE FROM chaos.published WHERE event = 102"),
    (
        "ended twice",
        f"{ATTEMPT} SELECT 8, now(), 1, 18, 'released', 1 FROM generate_series(1, 2)",
    ),
    (
        "attempts miscounted",
        f"{ATTEMPT} VALUES (8, now(), 1, 10, 'lost', 1)",
    ),
]


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute((Path(chaos.__path__[0]) / "facts.sql").read_bytes())
        conn.execute(GOOD.encode())
        yield conn


def book(folder: Path, runs: dict[int, tuple[int, int, int, int]]) -> None:
    lines = []
    for job, (attempt, token, begun, ended) in runs.items():
        lines += [f"b {job} {attempt} {token} {begun}", f"e {job} {attempt} {token} {ended}"]
    (folder / "r1.1.runs").write_text("\n".join(lines) + "\n")


def found(conn: psycopg.Connection[Any], folder: Path, runs: dict[int, Any] = RUNS, **facts: Any) -> dict[str, str]:
    book(folder, runs)
    gather(conn, folder)
    acknowledged = {1: 2, 2: 2, 3: 2, 4: 1, 5: 2, 6: 1}
    return {violation.check: str(violation) for violation in judge(Evidence(conn, acknowledged, **facts))}


def test_a_good_run_is_good(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    assert found(conn, tmp_path) == {}


def test_a_clock_that_was_ahead_reschedules_nothing_into_the_past(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    conn.execute("""
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        VALUES (8, now() + interval '1 second', 1, 10, 'released', 1)""")
    assert "rescheduled into the past" not in found(conn, tmp_path)


def test_a_clock_that_was_set_back_reschedules_nothing_into_the_past(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The first attempt gave it back by the clock before, the second by the clock three hours behind."""
    conn.execute("""
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        SELECT e.id, e.available_at + a.hours * interval '1 hour', 1, a.token, 'retry', a.attempt
        FROM holdfast.job_history e, (VALUES (3, 1, 1), (0, 2, 2)) AS a (hours, token, attempt) WHERE e.id = 8""")
    conn.execute("UPDATE holdfast.job_history SET finished_at = finished_at + interval '4 hours' WHERE id = 8")
    assert "rescheduled into the past" not in found(conn, tmp_path)


def test_what_a_clock_that_was_ahead_took_away_was_not_left_behind(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    stopped = TAMPERED["left behind by a stopped worker"]
    conn.execute("SELECT holdfast.ensure_partitions(60)")
    conn.execute(stopped.replace("VALUES (8, now()", "VALUES (8, now() + interval '40 days'").encode())
    assert "left behind by a stopped worker" not in found(conn, tmp_path)


def test_a_clock_that_is_set_back_makes_jobs_due_by_itself(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute("""
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt)
        SELECT id, available_at + interval '170 minutes', 1, 2, 'released', 2 FROM holdfast.job_history WHERE id = 8""")
    conn.execute("UPDATE holdfast.job_history SET finished_at = finished_at + interval '4 hours' WHERE id = 8")
    assert "rescheduled into the past" not in found(conn, tmp_path)


@pytest.mark.parametrize(("check", "tampering"), [*TAMPERED.items(), *ALSO])
def test_what_is_tampered_with_is_noticed(
    conn: psycopg.Connection[Any], tmp_path: Path, check: str, tampering: str
) -> None:
    conn.execute(tampering.encode())
    assert check in found(conn, tmp_path)


def test_a_rolled_back_job_that_ran_is_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    assert "never promised" in found(conn, tmp_path, RUNS | {50: (1, 60, 1, 2)})


def test_an_end_by_an_earlier_token_is_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    """A later claim was started: what the earlier one returned must not have been taken."""
    book(tmp_path, {1: (1, 99, 1, 2)})
    (tmp_path / "r1.1.runs").rename(tmp_path / "r2.1.runs")
    assert "stale writes accepted" in found(conn, tmp_path)


def test_a_job_that_began_before_the_one_before_it_had_ended_is_noticed(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    early = RUNS | {4: (1, 14, RUNS[3][3] - 1, RUNS[4][3])}
    assert list(found(conn, tmp_path, early)) == ["keys out of order"]


def test_a_job_that_began_before_its_blocker_had_ended_is_noticed(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    early = RUNS | {8: (1, 18, RUNS[7][3] - 1, RUNS[8][3])}
    assert list(found(conn, tmp_path, early)) == ["blockers ignored"]


def test_a_slow_recovery_a_death_and_a_late_pickup_are_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "recoveries": [Recovery(("worker killed",), 0, 1, 4.6, 4.5, "the probe waits")],
        "deaths": [Death("r1.1", -11, False, ""), Death("r2.1", 86, True, "")],
        "probes": [Probe(9, "late", RUNS[9][2] / 1e9 - checks.PICKUP["late"] - 0.1)],
        "calm": [(0.0, 100.0)],
    }
    seen = found(conn, tmp_path, **facts)
    assert set(seen) == {"recovery too slow", "worker died by itself", "picked up too late"}
    assert "r2.1" not in seen["worker died by itself"]


def test_a_late_pickup_in_a_storm_is_not_held_against_anybody(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    probe = Probe(9, "at once", RUNS[9][2] / 1e9 - 6)
    assert found(conn, tmp_path, probes=[probe], calm=[(0.0, probe.committed + 1)]) == {}


def test_an_unclaimed_rare_job_is_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    probe = Probe(9, "rare", RUNS[9][2] / 1e9 - checks.PICKUP["rare"] - 0.1)
    assert list(found(conn, tmp_path, probes=[probe], calm=[(0.0, 100.0)])) == ["queues passed over"]


def test_a_dead_letter_that_no_live_worker_could_read_is_no_violation(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    conn.execute(TAMPERED["dead letters that a worker could read"].encode())
    conn.execute("UPDATE holdfast.worker SET stopped_at = now() - interval '1 second' WHERE name = 'r2.1'")
    assert found(conn, tmp_path) == {}


def test_a_job_that_was_lost_long_before_its_worker_was_killed_is_no_violation(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A failover may cost a worker its claim, and a job may kill that worker a minute later."""
    conn.execute(TAMPERED["innocent jobs harmed"].encode())
    conn.execute(
        "UPDATE holdfast.attempt SET ended_at = ended_at - interval '1 minute' WHERE job_id = 8 AND worker_id = 1"
    )
    assert "innocent jobs harmed" not in found(conn, tmp_path)


def test_completions_of_a_deleted_worker_row_are_still_known(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute("INSERT INTO chaos.gone SELECT id, name, started_at, heartbeat_at FROM holdfast.worker WHERE id = 1")
    conn.execute("UPDATE holdfast.worker SET name = 'another' WHERE id = 1")
    assert found(conn, tmp_path) == {}


def test_a_result_that_came_back_as_it_was_is_no_violation(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute("UPDATE chaos.promise SET workload = 'typed' WHERE job = 1")
    result = TypeAdapter(Receipt).dump_json(receipt(1)).decode()
    conn.execute("UPDATE holdfast.job_history SET result = %s WHERE id = 1", [result])
    assert found(conn, tmp_path) == {}


def test_a_handler_that_ran_on_after_the_loss_is_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute("UPDATE holdfast.job_history SET kind = 'break.patient' WHERE id = 1")
    book(tmp_path, {1: (1, 99, RUNS[1][3] - 1, RUNS[1][3] + 1)})
    (tmp_path / "r1.1.runs").rename(tmp_path / "r2.1.runs")
    assert "ran on after the lease was lost" in found(conn, tmp_path)


def test_a_lease_that_was_lost_while_all_was_well_is_noticed(conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute(f"{ATTEMPT} VALUES (8, now(), 1, 10, 'lost', 1)".encode())
    assert "leases lost without cause" in found(conn, tmp_path, well=True)


@pytest.mark.parametrize("table", ["handed", "arrival"])
def test_an_event_that_came_twice_while_all_was_well_is_noticed(
    conn: psycopg.Connection[Any], tmp_path: Path, table: str
) -> None:
    conn.execute(f"INSERT INTO chaos.{table} SELECT * FROM chaos.{table} WHERE event = 102".encode())
    assert list(found(conn, tmp_path, well=True)) == ["events twice without cause"]


def test_an_event_that_came_twice_after_a_fault_is_not_held_against_anybody(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    conn.execute("INSERT INTO chaos.handed SELECT * FROM chaos.handed WHERE event = 102")
    assert found(conn, tmp_path) == {}


def test_every_check_is_shown_to_fail_here() -> None:
    elsewhere = {
        "recovery too slow",
        "worker died by itself",
        "picked up too late",
        "queues passed over",
        "ran on after the lease was lost",
        "leases lost without cause",
        "events twice without cause",
    }
    assert {check.name for check in checks.CHECKS} == set(TAMPERED) | elsewhere
