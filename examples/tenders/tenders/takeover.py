"""Takes over the deliveries in flight of the former worker, which kept their state in rows that it locked.

`python -m tenders.takeover`, when that worker has stopped and before this one starts. It may be killed and called
again: a delivery gets its job and the id of its chain in one transaction, and one that has a chain is left alone.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg

from tenders.app import app, config
from tenders.chain import Step, dispatch, receipt
from tenders.config import Config
from tenders.migrate import MARK, TABLE, migrate

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast import NewJob

# Deliveries that get their jobs in one transaction.
BATCH = 500

_FORMER = "SELECT FROM pg_attribute WHERE attrelid = to_regclass('notification_deliveries') AND attname = 'locked_at'"
_IN_FLIGHT = """
SELECT id, status, CASE WHEN status = 'sent' THEN sent_at + %s ELSE next_attempt_at END FROM notification_deliveries
WHERE completed_at IS NULL AND chain_id IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_LINK = """
UPDATE notification_deliveries d SET chain_id = made.chain, updated_at = now()
FROM unnest(%s::bigint[], %s::bigint[]) AS made (id, chain) WHERE d.id = made.id
"""


def take_over(url: str) -> int:
    """Change the former tables to ours, and give each delivery in flight its job. Return how many got one."""
    with psycopg.connect(url, autocommit=True) as conn:
        with conn.transaction():
            if conn.execute(_FORMER).rowcount:
                conn.execute(files("tenders").joinpath("former.sql").read_bytes())
                conn.execute(TABLE)
                conn.execute(MARK, ["0001_tables.sql"])
        migrate(url)
        taken = 0
        while made := enqueue_some(conn):
            taken += made
    return taken


def enqueue_some(conn: psycopg.Connection[Any], most: int = BATCH) -> int:
    """Give the oldest deliveries without a chain their jobs. Return how many got one."""
    with conn.transaction():
        rows = conn.execute(_IN_FLIGHT, [config.receipt_wait, most]).fetchall()
        jobs = app.sync.enqueue_many(conn, [_job_of(*row) for row in rows])
        conn.execute(_LINK, [[delivery for delivery, *_ in rows], [job.chain_id for job in jobs]])
    return len(rows)


def _job_of(delivery: int, status: str, due_at: datetime | None) -> NewJob[Any]:
    """Return the step of the chain at which this delivery is. It counts its attempts itself."""
    kind = receipt if status == "sent" else dispatch
    return kind.new(Step(delivery)).options(at=due_at)


def main() -> None:
    given = Config.load(os.environ)
    given.required("database_url")
    print(f"took over {take_over(given.database_url)} deliveries")


if __name__ == "__main__":
    main()
