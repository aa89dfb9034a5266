"""Many sessions that claim from one queue at once, 50 jobs a claim, against as many with the plainest pair.

The same work for both: a round hands out so many jobs, and more are waiting than that, so that no claim is empty. All
sessions belong to one process, which makes the same values of the rows for both: the difference is the server's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import _drivers as drivers
from holdfast._engine.jobs.due import LEAST_PLAIN, LONGEST_PLAIN, WHOLE_EVERY
from holdfast._store.claim import ClaimedJob
from holdfast._store.finish import complete_plain, finish_jobs
from holdfast._store.lease import Held
from holdfast._store.statement import number_array, pin_names, pin_plans
from labs.bench.cpu import cpu_seconds
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs
from labs.bench.noise import median_error
from labs.bench.plain import CLAIM, FINISH, Plain
from labs.bench.worker import Worker, completed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

CLAIMERS = (1, 4, 16, 48, 64)
LEAST = 0.9
# Processor time of the server, where sessions do not outnumber the cores by far: there it is mostly waiting.
CPU_MOST, CPU_TO = 1.2, 16
# A fall is what is left of the rate from 16 sessions to 64, ours against the plain pair's: the rest is noise.
LEAST_OF_FALL = 0.95
FALL_FROM, FALL_TO = 16, 64
BATCH = 50
PER_ROUND = 15_000
ROUNDS = 5
# Jobs enqueued one by one: a claim's floor lies among their times.
SPREAD = "now() - interval '2 minutes' + i * interval '100 microseconds'"
BUSY_PAUSE = 0.05
LONGEST_SECONDS = 120.0


@dataclass(slots=True)
class Round:
    """The totals of all sessions of one round."""

    done: int = 0
    fallbacks: int = 0
    """Finishes that met a locked row, and were made again the careful way."""
    busy: int = 0
    """Endings that were asked to come again after that."""
    fruitless: int = 0
    """Claims that met nothing but windows of others."""
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        return self.done / self.seconds

    @property
    def cpu_per_job(self) -> float:
        return self.cpu / self.done


class Ours:
    """One session with the store's claims and finishes, plain and whole ones, as a worker calls them."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], worker: Worker, round_: Round) -> None:
        self._conn = conn
        self._worker = worker
        self._round = round_
        self._whole_at = -math.inf
        self._plain_left = 0

    async def turn(self) -> int:
        self._plain_left -= 1
        plain_for = LONGEST_PLAIN if self._plain_left >= 0 else WHOLE_EVERY
        if time.monotonic() - self._whole_at < plain_for and (statement := self._worker.plain(BATCH)) is not None:
            if jobs := await drivers.run(self._conn, statement):
                self._worker.learn_plain(jobs)
                await self._finish(jobs)
                return len(jobs)
            self._whole_at = -math.inf
        while True:
            reach = self._worker.floors.reach()
            claim = await drivers.run(self._conn, self._worker.statement(BATCH, reach))
            pause = self._worker.learn(claim, reach)
            if claim.jobs or not claim.again:
                break
            self._round.fruitless += 1
            await asyncio.sleep(pause)
        if len(claim.jobs) == BATCH:
            self._whole_at, self._plain_left = time.monotonic(), LEAST_PLAIN
        if claim.jobs:
            await self._finish(claim.jobs)
        return len(claim.jobs)

    async def _finish(self, jobs: Sequence[ClaimedJob]) -> None:
        endings, careful = completed(jobs), False
        while endings:
            try:
                if not careful and await drivers.run(self._conn, complete_plain(self._worker.id, endings)) is None:
                    return
                answers = await drivers.run(self._conn, finish_jobs(self._worker.id, endings, careful=careful))
            except psycopg.errors.LockNotAvailable:
                self._round.fallbacks += 1
                careful = True
                continue
            endings = [
                ending for ending in endings if answers.get(Held(ending.claimed.id, ending.claimed.token)) == "busy"
            ]
            if endings:
                self._round.busy += len(endings)
                careful = True
                await asyncio.sleep(BUSY_PAUSE)


class PlainSession:
    """One session with the plain pair."""

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn

    async def turn(self) -> int:
        rows = await (await self._conn.execute(CLAIM, {"limit": BATCH})).fetchall()
        if rows:
            unknown = [False] * (len(ClaimedJob._fields) - len(rows[0]))
            endings = completed([ClaimedJob._make([*row, *unknown]) for row in rows])
            cursor = await self._conn.execute(FINISH, {"ids": number_array([ending.claimed.id for ending in endings])})
            assert cursor.rowcount == len(rows)
        return len(rows)


def measure(scale: float) -> Section:
    jobs = max(3_000, round(PER_ROUND * scale))
    rounds: dict[tuple[str, int], list[Round]] = defaultdict(list)
    with ground(autovacuum="off") as base, base.database() as url, connected(url) as conn:
        Plain(conn).create()
        workers = [Worker(conn) for _ in range(max(CLAIMERS))]
        for number in range(max(2, round(ROUNDS * scale))):
            for claimers in CLAIMERS:
                progress(f"claimers: round {number + 1}, {claimers}")
                turns: list[tuple[str, Callable[[], Round]]] = [
                    ("plain", lambda: _plain(conn, url, claimers, jobs)),  # noqa: B023 - called within the round
                    ("ours", lambda: _ours(conn, url, workers[:claimers], jobs)),  # noqa: B023
                ]
                for name, turn in turns if number % 2 else reversed(turns):
                    rounds[name, claimers].append(turn())
    return _section(rounds)


def _section(rounds: dict[tuple[str, int], list[Round]]) -> Section:
    figures, rows = [], []
    for claimers in CLAIMERS:
        ours, plain = rounds["ours", claimers], rounds["plain", claimers]
        ratios = [mine.rate / other.rate for mine, other in zip(ours, plain, strict=True)]
        figures.append(
            Figure(
                f"{claimers} {'claimer' if claimers == 1 else 'claimers'}, rate against the plain pair",
                median(ratios),
                least=LEAST,
            )
        )
        if claimers <= CPU_TO:
            name = f"{claimers} {'claimer' if claimers == 1 else 'claimers'}, CPU of the server against the plain pair"
            figures.append(Figure(name, _cpu(ours) / _cpu(plain), limit=CPU_MOST))
        rows.append(
            (
                str(claimers),
                f"{_rate(plain):,.0f}",
                f"{_rate(ours):,.0f}",
                f"± {median_error(ratios):.2f}",
                f"{_cpu(plain):,.0f}",
                f"{_cpu(ours):,.0f}",
                f"{1000 * sum(one.fallbacks for one in ours) * BATCH / sum(one.done for one in ours):.1f}",
                f"{sum(one.busy for one in ours):,}",
                f"{sum(one.fruitless for one in ours):,}",
            )
        )
    kept = [_rate(rounds[name, FALL_TO]) / _rate(rounds[name, FALL_FROM]) for name in ("ours", "plain")]
    figures.append(
        Figure(
            f"rate kept from {FALL_FROM} to {FALL_TO} claimers, against the plain pair",
            kept[0] / kept[1],
            least=LEAST_OF_FALL,
        )
    )
    head = (
        "claimers",
        "plain, jobs/s",
        "ours, jobs/s",
        "ratio",
        "plain, server CPU per job, µs",
        "ours",
        "fallbacks per 1,000 finishes",
        "busy",
        "claims that only waited",
    )
    return Section(figures, [table(head, rows)])


def _rate(rounds: Sequence[Round]) -> float:
    return median(one.rate for one in rounds)


def _cpu(rounds: Sequence[Round]) -> float:
    """In microseconds."""
    return 1e6 * median(one.cpu_per_job for one in rounds)


def _ours(conn: psycopg.Connection[Any], url: str, workers: Sequence[Worker], jobs: int) -> Round:
    _fill(conn, "holdfast", jobs + 3 * BATCH * len(workers))
    for worker in workers:
        worker.floors.drop()
    round_ = Round()
    return asyncio.run(
        _run(url, len(workers), jobs, round_, lambda number, session: Ours(session, workers[number], round_).turn)
    )


def _plain(conn: psycopg.Connection[Any], url: str, claimers: int, jobs: int) -> Round:
    _fill(conn, "plain", jobs + 3 * BATCH * claimers)
    return asyncio.run(_run(url, claimers, jobs, Round(), lambda _, session: PlainSession(session).turn))


def _fill(conn: psycopg.Connection[Any], schema: str, jobs: int) -> None:
    conn.execute(f"TRUNCATE {schema}.job, {schema}.job_history".encode(), prepare=False)
    load_jobs(conn, jobs, into=f"{schema}.job", due=SPREAD)
    conn.execute(f"VACUUM ANALYZE {schema}.job".encode(), prepare=False)
    checkpoint(conn)


async def _run(
    url: str,
    claimers: int,
    jobs: int,
    round_: Round,
    make: Callable[[int, psycopg.AsyncConnection[Any]], Callable[[], Awaitable[int]]],
) -> Round:
    async with AsyncExitStack() as stack, asyncio.timeout(LONGEST_SECONDS):
        sessions = [await stack.enter_async_context(await _session(url)) for _ in range(claimers)]
        pids = [session.info.backend_pid for session in sessions]
        turns = [make(number, session) for number, session in enumerate(sessions)]

        async def work(turn: Callable[[], Awaitable[int]]) -> None:
            while round_.done < jobs:
                done = await turn()
                assert done or round_.done >= jobs, "the jobs ran out"
                round_.done += done

        # Workers keep their sessions for hours: what the first turn of each has to plan is not the measure here.
        await asyncio.gather(*(turn() for turn in turns))
        before, begun = sum(map(cpu_seconds, pids)), time.perf_counter()
        await asyncio.gather(*(work(turn) for turn in turns))
        return replace(round_, seconds=time.perf_counter() - begun, cpu=sum(map(cpu_seconds, pids)) - before)


async def _session(url: str) -> psycopg.AsyncConnection[Any]:
    conn = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0)
    await drivers.run(conn, pin_names(local=False))
    await drivers.run(conn, pin_plans())
    return conn
