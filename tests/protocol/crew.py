"""Connections of a few workers and producers to one database, kept from example to example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast._drivers import run_sync
from holdfast._store.worker import register_worker

if TYPE_CHECKING:
    from typing import Self

WORKERS = 3
KINDS = ("a", "b")
QUEUES = ("default", "slow")
_TABLES = (
    *(
        "job",
        "job_history",
        "job_failed",
        "attempt",
        "replay",
        "order_stop",
        "unique_window",
        "tally",
        "sweep",
        "worker",
    ),
    *("blocker", "watcher"),
)
_SEQUENCES = ("job_id_seq", "worker_id_seq", "token")

# Vacuum shortens a table under a lock that even readers notice; nobody here has the patience.
_STAY_LONG = """
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s SET (vacuum_truncate = off)', part);
    END LOOP;
END $$
"""

Connection = psycopg.Connection[Any]


class Crew:
    """One connection for each worker, one for a transaction that stays open, one for everybody else."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.outside = self._connect()
        self.slow = self._connect()
        self.outside.execute(_STAY_LONG)
        self.workers = [self._connect() for _ in range(WORKERS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for conn in (self.outside, self.slow, *self.workers):
            conn.close()

    def reset(self) -> None:
        """Begin anew, with the same ids again, because shards follow them.

        DELETE, because TRUNCATE of some hundred partitions takes longer than an example.
        """
        if self.slow.closed or self.slow.info.transaction_status != TransactionStatus.IDLE:
            self.kill_slow()
        with self.outside.pipeline():
            for table in _TABLES:
                self.outside.execute(f"DELETE FROM holdfast.{table}".encode())
            for sequence in _SEQUENCES:
                self.outside.execute("SELECT setval(%s, 1, false)", [f"holdfast.{sequence}"])

    def register(self, name: str) -> int:
        return run_sync(self.outside, register_worker(name, queues=QUEUES, kinds=KINDS))

    def kill_slow(self) -> None:
        """End the session as its backend's death does: whatever it had not committed is gone."""
        if not self.slow.closed:
            self.outside.execute("SELECT pg_terminate_backend(%s, 10000)", [self.slow.info.backend_pid])
            self.slow.close()
        self.slow = self._connect()

    def _connect(self) -> Connection:
        # Nobody here waits for long: where a row or a key is locked, that is the answer.
        return psycopg.connect(self._url, autocommit=True, options="-c lock_timeout=10ms -c timezone=UTC")
