"""A hot order key: 100,000 jobs wait on one key, and other work must not notice."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs
from labs.bench.watch import Watch, alternate
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._store.claim import ClaimedJob

RATE = 0.9
WAITING = 100_000
BATCH = 500
PER_ROUND = 20_000
ROUNDS = 8
STEPS = 200
FEW = STEPS + 10
KEY = "customer 1"


@dataclass(frozen=True, slots=True)
class Parked:
    """All but the first of the key's jobs stand aside; the first is claimed."""

    head: ClaimedJob
    calls: int
    seconds: float
    longest: float


def measure(scale: float) -> Section:
    """Compare two databases, claim by claim: in one the key is hot, in the other there is none.

    Everything has the same queue, kind and priority: the hot key's jobs stood before the others in the same lane.
    """
    watch = Watch()
    with ground(autovacuum="off") as base, ExitStack() as stack:
        hot, calm = (Worker(stack.enter_context(connected(stack.enter_context(base.database())))) for _ in range(2))
        load_jobs(hot.conn, round(WAITING * scale), order_key=KEY)
        progress("hot_key: parking")
        parked = park(hot)
        for number in range(rounds := max(1, round(ROUNDS * scale))):
            progress(f"hot_key: round {number + 1} of {rounds}")
            _other_work(watch, {"hot": hot, "calm": calm})
        load_jobs(calm.conn, FEW, order_key=KEY)
        _follow(watch, {"hot": (hot, parked.head), "calm": (calm, park(calm).head)})
    rate = watch.median("calm") / watch.median("hot")
    figures = [
        Figure("claim rate of other work, against the same without the key", rate, least=RATE),
        Figure("parking them all", parked.seconds, unit=" s"),
        Figure("the longest claim meanwhile", 1000 * parked.longest, unit=" ms"),
        Figure("finish and promote, against a key with few", watch.median("finish hot") / watch.median("finish calm")),
    ]
    rows = [
        ("claim and finish 500 of other work", watch.milliseconds("hot"), watch.milliseconds("calm")),
        ("finish the head, promote the next", watch.milliseconds("finish hot"), watch.milliseconds("finish calm")),
        ("claim the next", watch.milliseconds("claim hot"), watch.milliseconds("claim calm")),
    ]
    return Section(figures, [table(("", "100,000 waiting", "none, or few"), rows)])


def park(worker: Worker) -> Parked:
    heads: list[ClaimedJob] = []
    times: list[float] = []
    again = True
    while again:
        begun = time.perf_counter()
        claim = worker.claim(BATCH)
        times.append(time.perf_counter() - begun)
        heads += claim.jobs
        again = claim.again or bool(claim.jobs)
    assert len(heads) == 1, "one job of a key at a time"
    return Parked(heads[0], len(times), sum(times), max(times))


def _other_work(watch: Watch, workers: Mapping[str, Worker]) -> None:
    """Claim and finish by turns while the head of the key is held."""
    for worker in workers.values():
        load_jobs(worker.conn, PER_ROUND)
        worker.conn.execute("VACUUM holdfast.job", prepare=False)
        checkpoint(worker.conn)

    def turn(name: str) -> None:
        with watch(name):
            jobs = workers[name].claim(BATCH).jobs
            workers[name].finish(jobs)
        assert len(jobs) == BATCH

    alternate([partial(turn, name) for name in workers], PER_ROUND // BATCH)


def _follow(watch: Watch, holders: Mapping[str, tuple[Worker, ClaimedJob]]) -> None:
    """Work the key off for a while: finish the head, claim the next."""
    heads = {name: head for name, (_, head) in holders.items()}

    def step(name: str) -> None:
        worker = holders[name][0]
        with watch(f"finish {name}"):
            worker.finish([heads[name]])
        with watch(f"claim {name}"):
            (heads[name],) = worker.claim(BATCH).jobs

    alternate([partial(step, name) for name in holders], STEPS)
