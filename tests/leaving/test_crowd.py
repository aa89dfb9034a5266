"""Producers, workers of both databases and several movers at once: every job runs once, each key in its order."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import claim_jobs
from tests.traps.workers import drain, enqueue, job

if TYPE_CHECKING:
    from holdfast._store.claim import ClaimedJob
    from tests.leaving.two import Side, Two
    from tests.traps.workers import Worker

KEYS = ("a", "b", None, None)
SECONDS = 60


class Record:
    """The payloads in the order in which their jobs ran, in either database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ran: list[str] = []

    def run(self, worker: Worker, jobs: list[ClaimedJob]) -> None:
        """Run jobs: a job is recorded before it ends, so that the next of its key cannot be recorded earlier."""
        with self._lock:
            self.ran += [one.payload or "" for one in jobs]
        worker.end(jobs)


def produce(side: Side, jobs: int, seed: int) -> list[str]:
    """Enqueue jobs in transactions of a few, each payload with its key and its number."""
    conn, chance, made = side.connect(), random.Random(seed), []
    for start in range(0, jobs, 5):
        payloads = [(chance.choice(KEYS), f"{seed}:{number}") for number in range(start, start + 5)]
        enqueue(conn, *[job(payload=f'"{key}:{name}"', order_key=key and f"{key}{seed}") for key, name in payloads])
        made += [f'"{key}:{name}"' for key, name in payloads]
    return made


def work(side: Side, record: Record, over: threading.Event) -> None:
    worker = side.worker()
    while not over.is_set():
        jobs = run_sync(worker.conn, claim_jobs(worker.id, {"default": 20}, worker.leases)).jobs
        record.run(worker, jobs)


def run_the_rest(two: Two, record: Record) -> None:
    """Move and run until nothing is left anywhere."""
    deadline = time.monotonic() + SECONDS
    sides = [(side, side.worker()) for side in (two.here, two.there)]
    while two.here.live() + two.there.live():
        assert time.monotonic() < deadline, "jobs are left"
        two.mover().move()
        for side, worker in sides:
            side.conn.execute("UPDATE holdfast.job SET available_at = now(), later = NULL WHERE status = 'pending'")
            record.run(worker, worker.claim())


def in_order(ran: list[str], made: list[str]) -> None:
    """Compare the jobs of each key with the order in which they were enqueued."""
    for key in ("a", "b"):
        for seed in {payload.split(":")[1] for payload in made}:
            mine = [payload for payload in made if payload.startswith(f'"{key}:{seed}:')]
            assert [payload for payload in ran if payload in set(mine)] == mine


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.prove), pytest.param(3, marks=pytest.mark.prove)]
)
def test_every_job_runs_once_and_each_key_in_order(two: Two, seed: int) -> None:
    record, over = Record(), threading.Event()
    with ThreadPoolExecutor(8) as pool:
        producers = [pool.submit(produce, two.here, 150, 10 * seed + number) for number in range(2)]
        workers = [pool.submit(work, side, record, over) for side in (two.here, two.there)]
        movers = [pool.submit(mover.move) for mover in (two.mover(batch=11), two.mover(batch=7))]
        made = [producer.result(SECONDS) for producer in producers]
        for mover in movers:
            mover.result(SECONDS)
        two.mover(batch=13).move()
        over.set()
        for worker in workers:
            worker.result(SECONDS)
    run_the_rest(two, record)
    assert sorted(record.ran) == sorted(payload for some in made for payload in some)
    for some in made:
        in_order(record.ran, some)
    assert two.here.value("SELECT count(*) FROM holdfast.departure WHERE arrived_at IS NULL") == 0


def test_two_movers_in_opposite_directions_end_and_lose_nothing(two: Two) -> None:
    here = enqueue(two.here.conn, *[job(order_key=key) for key in ("a", None, "b", None) * 25])
    there = enqueue(two.there.conn, *[job(order_key=key) for key in ("a", None, "c", None) * 25])
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(mover.move) for mover in (two.mover(batch=9), two.mover_back(batch=9))]
        for run in runs:
            run.result(SECONDS)
    assert two.here.live() + two.there.live() == len(here) + len(there)


def test_a_mover_beside_workers_of_the_source_takes_no_claimed_job(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job() for _ in range(300)])
    record, over = Record(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work, two.here, record, over)
        two.mover(batch=10).move()
        over.set()
        worker.result(SECONDS)
    done = len(drain(two.here.worker())) + len(drain(two.there.worker())) + len(record.ran)
    assert done == len(ids)
