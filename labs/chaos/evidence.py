"""The facts of a run, brought together in the database when all is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import psycopg

    from labs.chaos.broker import Arrival
    from labs.chaos.fleet import Death
    from labs.chaos.prober import Probe
    from labs.chaos.recovery import Recovery

# Every worker there was. An id that another has got since is that of the one from whom it was taken.
_WORKERS = """
    CREATE TABLE chaos.worker AS
    SELECT id, name, started_at, heartbeat_at, stopped_at, versions FROM chaos.gone UNION ALL
    SELECT id, name, started_at, heartbeat_at, stopped_at, versions FROM holdfast.worker w
    WHERE NOT EXISTS (SELECT FROM chaos.gone g WHERE g.id = w.id)
"""
# Everything that has ended, with what its handler signed: under which claim it ran.
_ENDED = """
    CREATE TABLE chaos.ended AS
    SELECT e.id, e.kind, e.status::text AS status, e.attempt, e.chain_id, e.next_id, e.finished_at, e.available_at,
        e.payload_version,
        p.workload, p.n, p.key, p.expected, w.name AS worker, e.payload, e.result,
        CASE WHEN signed THEN (e.result ->> 'attempt')::integer END AS signed_attempt,
        CASE WHEN signed THEN (e.result ->> 'token')::bigint END AS signed_token,
        CASE WHEN signed THEN e.result ->> 'worker' END AS signed_worker
    FROM (SELECT * FROM holdfast.job_history UNION ALL SELECT * FROM holdfast.job_failed) AS e
        LEFT JOIN chaos.promise p ON p.job = e.id
        LEFT JOIN chaos.worker w ON w.id = e.worker_id,
        LATERAL (SELECT json_typeof(e.result) = 'object' AND e.result ->> 'token' IS NOT NULL AS signed) AS s
"""
# The jobs that were made of events. The promise of an event is the promise of its job.
_RECEIVED = """
    CREATE TABLE chaos.received AS
    SELECT id AS job, (payload -> 'event' ->> 'id')::bigint AS event
    FROM (SELECT id, kind, payload FROM holdfast.job_history UNION ALL SELECT id, kind, payload FROM holdfast.job_failed
        UNION ALL SELECT id, kind, payload FROM holdfast.job) AS j
    WHERE kind = 'received'
"""
_PROMISED = """
    INSERT INTO chaos.promise (job, batch, n, workload, expected)
    SELECT h.job, 0, s.n, 'event', 'completed'
    FROM chaos.received h JOIN (SELECT DISTINCT event, n FROM chaos.published) AS s ON s.event = h.event
"""
# Each job's claims that were started, and the attempts that did not simply complete it.
_STARTED = """
    CREATE TABLE chaos.started AS
    SELECT job, count(*) AS starts, count(DISTINCT token) AS tokens, max(token) AS last_token, max(attempt) AS attempt,
        min(begun) AS first_begun, max(begun) AS last_begun
    FROM chaos.run GROUP BY job
"""
_ATTEMPTS = """
    CREATE TABLE chaos.attempts AS
    SELECT job_id AS job, count(*) FILTER (WHERE outcome IN ('retry', 'lost')) AS counted,
        count(*) FILTER (WHERE outcome IN ('released', 'reschedule')) AS uncounted,
        count(*) FILTER (WHERE outcome = 'failed') AS failed,
        count(*) FILTER (WHERE outcome = 'lost') AS lost,
        max(lock_token) FILTER (WHERE outcome = 'completed') AS completed_token,
        count(*) - count(DISTINCT lock_token) AS doubles
    FROM holdfast.attempt GROUP BY job_id
"""

INDEXES = (
    *(
        "run (job)",
        "ended (id)",
        "ended (chain_id)",
        "started (job)",
        "attempts (job)",
        "promise (job)",
        "ledger (job)",
    ),
    *("published (event)", "arrival (event)", "received (event)", "handed (event)"),
)


@dataclass(slots=True)
class Evidence:
    """The input of the checks."""

    conn: psycopg.Connection[Any]
    acknowledged: dict[int, int]
    recoveries: Sequence[Recovery] = ()
    deaths: Sequence[Death] = ()
    probes: Sequence[Probe] = ()
    calm: Sequence[tuple[float, float]] = field(default_factory=list)
    """Spans of the monotonic clock in which no fault was on or being recovered from."""
    well: bool = False
    """Nothing was done to any worker in the whole run."""
    slack: float = 0.0
    """As in the pace."""

    def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode(), params).fetchall()

    def value(self, query: str, *params: object) -> Any:
        return self.rows(query, *params)[0][0]


def note_arrivals(conn: psycopg.Connection[Any], arrivals: Iterable[Arrival]) -> None:
    """Load what the broker's stream has."""
    with conn.cursor() as cursor, cursor.copy("COPY chaos.arrival FROM STDIN") as copy:
        for arrival in arrivals:
            copy.write_row(arrival)


def gather(conn: psycopg.Connection[Any], folder: Path) -> None:
    """Load what the workers noted, and make the tables that the checks read."""
    with conn.cursor() as cursor, cursor.copy("COPY chaos.run FROM STDIN") as copy:
        for row in _runs(folder):
            copy.write_row(row)
    with conn.cursor() as cursor, cursor.copy("COPY chaos.handed FROM STDIN") as copy:
        for row in _handed(folder):
            copy.write_row(row)
    conn.execute("SET work_mem = '256MB'")
    for statement in (_RECEIVED, _PROMISED, _WORKERS, _ENDED, _STARTED, _ATTEMPTS):
        conn.execute(statement.encode())
    for index in INDEXES:
        conn.execute(f"CREATE INDEX ON chaos.{index}".encode())
    conn.execute(f"ANALYZE {', '.join({f'chaos.{index.split()[0]}' for index in INDEXES})}".encode())


def _runs(folder: Path) -> Iterator[tuple[object, ...]]:
    for path in sorted(folder.glob("*.runs")):
        lines = [line.split() for line in path.read_text().splitlines()]
        ended = {(line[1], line[3]): line[4] for line in lines if line[0] == "e"}
        for what, job, attempt, token, at in lines:
            if what == "b":
                yield job, attempt, token, at, ended.get((job, token)), path.stem


def _handed(folder: Path) -> Iterator[tuple[object, ...]]:
    for path in sorted(folder.glob("*.handed")):
        for line in path.read_text().splitlines():
            event, at = line.split()
            yield event, at, path.stem
