"""Many workers at once on a few limits, with kills, losses, cancels and changes, and a sampler of what runs."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._drivers import run_sync
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.search import cancel_job
from tests.kit.limits import limited, mend, set_limits
from tests.kit.workers import COMPLETED, FAILED, RELEASED, RESCHEDULED, RETRIED, Worker, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.outcome import Outcome

WORKERS = 6
MOST = 400
# Each job has one of these sets of keys.
KEYS = [*[(f"three:{n}",) for n in range(10)], *[("five",)] * 5, *[("one",)] * 2, ("three:1", "five"), ("five", "one")]
LIMITS = {"one": 1, "three": 3, "five": 5}
# Only the limit of `five` changes; the sampler looks at the others.
FIXED = "limit_key <> 'five'"
# Which job runs under which key, once for each of its keys, and more than the limit.
VIOLATIONS = """
    SELECT key, count(*), max(r.concurrency)
    FROM holdfast.job j, unnest(j.limits) AS key JOIN holdfast.limit_rule r ON r.name = split_part(key, ':', 1)
    WHERE j.status = 'processing' AND (NOT %(fixed)s OR key <> 'five') GROUP BY key HAVING count(*) > max(r.concurrency)
"""
OUTCOMES: list[Outcome] = [RETRIED, RELEASED, RESCHEDULED, FAILED]


@dataclass
class LimitedCrowd:
    """`seconds` of trouble; then everything must be done within `patience` more."""

    url: str
    seconds: float
    seed: int
    patience: float = 60
    ended: int = 0
    kills: int = 0
    samples: int = 0
    mended: int = 0
    """Keys that were stranded at the end of the trouble."""
    violations: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    calm: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self._connect() as conn:
            set_limits(conn, **LIMITS)
            self._enqueue(conn, random.Random(self.seed), 300)
            with ThreadPoolExecutor(WORKERS + 3) as pool:
                roles: list[tuple[Callable[[random.Random], None], int]] = [
                    *[(self._work, n) for n in range(WORKERS)],
                    (self._sample, 100),
                    (self._trouble, 101),
                    (self._produce, 102),
                ]
                futures = [pool.submit(self._guarded, role, n) for role, n in roles]
                self.calm.wait(self.seconds)
                self.calm.set()
                set_limits(conn, **LIMITS)
                self._drain(conn)
                self.done.set()
                for future in futures:
                    future.result()

    def _drain(self, conn: psycopg.Connection[Any]) -> None:
        deadline = time.monotonic() + self.patience
        # A limit that was raised by hand promotes nothing.
        mend(conn, "five")
        while number(conn, "SELECT count(*) FROM holdfast.job") and time.monotonic() < deadline:
            conn.execute(
                "UPDATE holdfast.job SET available_at = now() WHERE status = 'pending' AND available_at > now()"
            )
            # Those of killed sessions.
            conn.execute(
                "UPDATE holdfast.job SET locked_until = now() WHERE status = 'processing' AND NOT EXISTS ("
                "SELECT FROM pg_stat_activity a WHERE a.application_name = 'w' || locked_by)"
            )
            time.sleep(0.1)
        self.mended = mend(conn)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def _guarded(self, role: Callable[[random.Random], None], n: int) -> None:
        try:
            role(random.Random(self.seed * 1000 + n))
        except Exception as error:  # noqa: BLE001 - whatever happens to one of them is the test's result
            self.errors.append(f"{role.__name__}: {error!r}")

    def _enqueue(self, conn: psycopg.Connection[Any], chance: random.Random, count: int) -> None:
        jobs = [
            limited(
                *chance.choice(KEYS),
                kind=chance.choice("km"),
                max_attempts=None,
                order_key=f"o{chance.randrange(20)}" if chance.random() < 0.1 else None,
                priority=chance.randrange(4, 6),
            )
            for _ in range(count)
        ]
        run_sync(conn, enqueue_jobs(jobs))

    def _produce(self, chance: random.Random) -> None:
        with self._connect() as conn:
            while not self.calm.wait(0.02):
                if number(conn, "SELECT count(*) FROM holdfast.job") < MOST:
                    self._enqueue(conn, chance, chance.choice((1, 1, 5, 40)))

    def _sample(self, _: random.Random) -> None:
        with self._connect() as conn:
            while not self.done.wait(0.002):
                self.violations += conn.execute(VIOLATIONS, {"fixed": True}).fetchall()
                self.samples += 1

    def _trouble(self, chance: random.Random) -> None:
        with self._connect() as conn:
            while not self.calm.wait(0.02):
                match chance.randrange(5):
                    case 0 if self.pids:
                        conn.execute("SELECT pg_terminate_backend(%s)", [chance.choice(list(self.pids.values()))])
                        self.kills += 1
                    case 1:
                        # Those of killed sessions, and of others too.
                        conn.execute(
                            "UPDATE holdfast.job SET locked_until = now() - interval '1 second' WHERE id = ANY (ARRAY("
                            "SELECT id FROM holdfast.job WHERE status = 'processing' LIMIT 3 FOR UPDATE SKIP LOCKED))"
                        )
                    case 2:
                        set_limits(conn, five=chance.choice((0, 2, 5, 9)))
                        mend(conn, "five")
                    case 3:
                        row = conn.execute(
                            "SELECT id FROM holdfast.job WHERE status IN ('pending', 'blocked') "
                            "OFFSET floor(random() * 50) LIMIT 1"
                        ).fetchone()
                        if row:
                            run_sync(conn, cancel_job(row[0]))
                    case 4:
                        row = conn.execute("SELECT id FROM holdfast.job WHERE status = 'pending' LIMIT 1").fetchone()
                        if row:
                            conn.execute("SELECT holdfast.reschedule_job(%s, now() + interval '1 hour')", [row[0]])

    def _work(self, chance: random.Random) -> None:
        number_ = chance.random()
        while not self.done.is_set():
            # A session that was killed: another worker takes its place.
            with suppress(psycopg.OperationalError), self._connect() as conn:
                worker = Worker(conn, "k", "m")
                conn.execute(f"SET application_name = 'w{worker.id}'".encode())
                self.pids[hash(number_)] = conn.info.backend_pid
                while not self.done.is_set():
                    self._turn(worker, chance)

    def _turn(self, worker: Worker, chance: random.Random) -> None:
        if chance.random() < 0.1 or self.calm.is_set():
            worker.reap(limit=20)
        jobs = worker.claim(chance.choice((1, 5, 20)))
        if not jobs:
            self.done.wait(0.003)
            return
        time.sleep(chance.random() * 0.005)
        trouble = 0.0 if self.calm.is_set() else 0.2
        endings = [Ending(job, chance.choice(OUTCOMES) if chance.random() < trouble else COMPLETED) for job in jobs]
        for _ in range(200):
            try:
                answers = run_sync(worker.conn, finish_jobs(worker.id, endings, careful=chance.random() < 0.5))
            except psycopg.errors.LockNotAvailable:
                continue
            busy = {held.id for held, answer in answers.items() if answer == "busy"}
            endings = [ending for ending in endings if ending.claimed.id in busy]
            if not endings:
                break
        self.ended += len(jobs)
