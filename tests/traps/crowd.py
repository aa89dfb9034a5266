"""Many producers and workers at once on a few order keys, and whether what they saw was in order."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._drivers import run_sync
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import Held
from tests.kit.workers import COMPLETED, RELEASED, RETRIED, Worker, enqueue, expire_leases, job, number

if TYPE_CHECKING:
    from holdfast._model.new_job import NewJob
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob

PRODUCERS = 6
WORKERS = 4
KEYS = 8


@dataclass
class Crowd:
    """`seconds` of producing; then everything must be done within `patience` more."""

    url: str
    seconds: float
    seed: int
    patience: float = 20
    committed: dict[int, float] = field(default_factory=dict)
    """Job to when its commit had returned, by one clock for all."""
    keys: dict[int, str | None] = field(default_factory=dict)
    claimed: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Job to when each claim of it was begun and had returned."""
    ended: dict[int, float] = field(default_factory=dict)
    """Job to when its last finish was begun."""
    errors: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    produced: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with ThreadPoolExecutor(PRODUCERS + WORKERS) as pool:
            workers = [pool.submit(self._guarded, self._work, n) for n in range(WORKERS)]
            producers = [pool.submit(self._guarded, self._produce, n) for n in range(PRODUCERS)]
            for producer in producers:
                producer.result()
            self.produced.set()
            for worker in workers:
                worker.result()

    def violations(self) -> list[tuple[int, int]]:
        """Return pairs of one key of which the later was claimed while the earlier was committed and not yet ended."""
        by_key: dict[str, list[int]] = defaultdict(list)
        for done in sorted(self.committed):
            if (key := self.keys[done]) is not None:
                by_key[key].append(done)
        found = []
        for ids in by_key.values():
            for place, later in enumerate(ids):
                for begun, returned in self.claimed[later]:
                    found += [
                        (earlier, later)
                        for earlier in ids[:place]
                        if self.committed[earlier] < begun and self.ended.get(earlier, float("inf")) > returned
                    ]
        return found

    def _guarded(self, role: Any, n: int) -> None:
        try:
            role(random.Random(self.seed * 100 + n))
        except Exception as error:  # noqa: BLE001 - whatever happens to one of them is the test's result
            self.errors.append(repr(error))

    def _produce(self, rng: random.Random) -> None:
        with psycopg.connect(self.url) as conn:
            while time.monotonic() < self.started + self.seconds:
                jobs: dict[int, str | None] = {}
                for _ in range(rng.randint(1, 3)):
                    key = rng.choice([None, *(f"key {n}" for n in range(KEYS))])
                    new: NewJob[Any] = job(order_key=key, max_attempts=1000)
                    jobs[enqueue(conn, new)[0]] = key
                    conn.execute("SELECT pg_sleep(%s)", [rng.random() * 0.01])  # a user's own work: commits come late
                if rng.random() < 0.2:
                    conn.rollback()
                    continue
                conn.commit()
                self.keys.update(jobs)
                self.committed.update(dict.fromkeys(jobs, time.monotonic()))

    def _work(self, rng: random.Random) -> None:
        with ExitStack() as stack:
            conn = stack.enter_context(psycopg.connect(self.url, autocommit=True))
            worker = Worker(conn)
            while True:
                begun = time.monotonic()
                claimed = worker.claim(20)
                returned = time.monotonic()
                for taken in claimed:
                    self.claimed[taken.id].append((begun, returned))
                if claimed:
                    rng.shuffle(claimed)
                    self._end(worker, claimed, rng)
                elif self._over(conn):
                    return
                else:
                    worker.reap()
                    conn.execute("SELECT pg_sleep(0.002)")

    def _over(self, conn: psycopg.Connection[Any]) -> bool:
        if not self.produced.is_set():
            return False
        left: bool = number(conn, "SELECT EXISTS (SELECT FROM holdfast.job)")
        return not left or time.monotonic() > self.started + self.seconds + self.patience

    def _end(self, worker: Worker, claimed: list[ClaimedJob], rng: random.Random) -> None:
        fate = rng.random()
        if fate < 0.1:
            expire_leases(worker.conn, claimed)  # the worker dies: somebody reaps
            return
        outcome: Outcome = RETRIED if fate < 0.2 else RELEASED if fate < 0.3 else COMPLETED
        todo = {Held(taken.id, taken.token): Ending(taken, outcome) for taken in claimed}
        for _ in range(1_000):
            if outcome is COMPLETED:
                self.ended.update(dict.fromkeys((held.id for held in todo), time.monotonic()))
            try:
                answers = run_sync(worker.conn, finish_jobs(worker.id, list(todo.values()), careful=True))
            except psycopg.errors.LockNotAvailable:
                worker.conn.execute("SELECT pg_sleep(0.01)")
                continue
            wrong = {held: answer for held, answer in answers.items() if answer not in {"busy", "pending", "completed"}}
            if wrong:
                self.errors.append(f"lost: {wrong}")
            todo = {held: todo[held] for held, answer in answers.items() if answer == "busy"}
            if not todo:
                return
            worker.conn.execute("SELECT pg_sleep(0.002)")
        self.errors.append(f"busy for ever: {todo}")
