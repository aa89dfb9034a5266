"""Bytes of WAL per job from enqueue to history, and what each of our indexes and tables costs."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import connected, ground, progress
from labs.bench.load import KIND, PAYLOAD
from labs.bench.watch import Watch, alternate
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

BYTES = 1_300
BATCH = 500
ROUNDS = 100
STAGES = ("enqueue", "claim", "finish")

# The changes that remove each one from the schema. Functions are edited where they name it.
WITHOUT: dict[str, list[str | tuple[str, str, str]]] = {
    "job_pending's last column, shard": [
        "DROP INDEX holdfast.job_pending",
        (
            "CREATE INDEX job_pending ON holdfast.job (queue, kind, priority, available_at, id)"
            " WHERE status = 'pending' AND suspect IS NULL"
        ),
    ],
    "job_lease": ["DROP INDEX holdfast.job_lease"],
    "job_unique_key": ["DROP INDEX holdfast.job_unique_key"],
    "job_order_key and job_order_key_running": [
        "DROP INDEX holdfast.job_order_key",
        "DROP INDEX holdfast.job_order_key_running",
    ],
    "job_history_id": ["DROP INDEX holdfast.job_history_id"],
    "tally": [("complete_jobs", r",\s*?tallied AS \(.*?GROUP BY queue, kind\)", "")],
    "attempt": [("complete_jobs", r"told AS \(.*?WHERE attempt > 1\),", "")],
}


class Cycle:
    """Enqueue, claim and finish one batch after another, counting what each stage writes and how long it takes."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.worker = Worker(conn)
        self.watch = Watch()
        self.written: defaultdict[str, list[int]] = defaultdict(list)
        self._new = [NewJob[object](Envelope(KIND), PAYLOAD)] * BATCH

    def run(self) -> None:
        with self._stage("enqueue"):
            run_sync(self.conn, enqueue_jobs(self._new))
        with self._stage("claim"):
            jobs = self.worker.claim(BATCH).jobs
        with self._stage("finish"):
            self.worker.finish(jobs)
        assert len(jobs) == BATCH

    @property
    def bytes_per_job(self) -> Mapping[str, float]:
        """By stage, of the median batch: what else the server writes now and then is not counted."""
        return {stage: median(self.written[stage]) / BATCH for stage in STAGES}

    @property
    def seconds(self) -> list[float]:
        """The seconds of each batch, over all stages."""
        return [sum(stages) for stages in zip(*(self.watch.seconds[stage] for stage in STAGES), strict=True)]

    def _stage(self, name: str) -> ExitStack:
        before = position(self.conn)
        stack = ExitStack()
        stack.callback(lambda: self.written[name].append(position(self.conn) - before))
        stack.enter_context(self.watch(name))
        return stack


def position(conn: psycopg.Connection[Any]) -> int:
    """Return how many bytes of WAL the server has written since it was made."""
    row = conn.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
    assert row is not None
    return int(row[0])


def measure(scale: float) -> Section:
    rounds = max(4, round(ROUNDS * scale))
    # Quiet: nothing but the statements writes.
    with ground(full_page_writes="off", autovacuum="off") as base:
        with base.database() as url, connected(url) as conn:
            cycle = Cycle(conn)
            alternate([cycle.run], rounds)
            per_job = cycle.bytes_per_job
        rows = []
        for name, changes in WITHOUT.items():
            progress(f"wal: without {name}")
            with base.database() as url, base.database() as other, connected(url) as conn, connected(other) as changed:
                change(changed, changes)
                cycles = [Cycle(conn), Cycle(changed)]
                alternate([cycle.run for cycle in cycles], rounds)
                saved = [sum(cycle.bytes_per_job.values()) for cycle in cycles]
                # By pairs of neighbours: what slows the machine slows both.
                spent = median(ours - others for ours, others in zip(*[cycle.seconds for cycle in cycles], strict=True))
                share = spent / median(cycles[0].seconds)
                rows.append((name, f"{saved[0] - saved[1]:,.0f}", f"{spent / BATCH * 1e6:+.1f}", f"{share:+.1%}"))
    figures = [
        Figure("WAL per job, enqueue to history", sum(per_job.values()), limit=BYTES, unit=" B"),
        *(Figure(f"of which {stage}", per_job[stage], unit=" B") for stage in STAGES),
    ]
    return Section(figures, [table(("", "WAL per job, B", "time per job, µs", "share of the time"), rows)])


def change(conn: psycopg.Connection[Any], changes: list[str | tuple[str, str, str]]) -> None:
    """Apply statements, and edits (function, pattern, replacement) to what functions say."""
    for edit in changes:
        if isinstance(edit, str):
            conn.execute(edit.encode(), prepare=False)
        else:
            name, pattern, replacement = edit
            done = conn.execute(
                """
                SELECT pg_get_functiondef(oid), regexp_replace(pg_get_functiondef(oid), %s, %s)
                FROM pg_proc WHERE oid = %s::regproc
                """,
                [pattern, replacement, f"holdfast.{name}"],
            ).fetchone()
            assert done is not None
            assert done[0] != done[1], f"holdfast.{name} has nothing that matches {pattern}: edit WITHOUT"
            conn.execute(done[1].encode(), prepare=False)
