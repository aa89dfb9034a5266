"""The load: transactions that enqueue, with the promise of every job in the same transaction; some are rolled back."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import NewJob, OrderKey
from holdfast._engine.address import watched
from holdfast._engine.link import LOST, sever
from labs.chaos import application, typed, versions
from labs.chaos.application import app

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from labs.chaos.ground import Reachable

Workload = Literal[
    "plain",
    "ledger",
    "keyed",
    "limited",
    "story",
    "tenant",
    "chain",
    "join",
    "version",
    "typed",
    "probe",
    "rare",
    "trouble",
    "held",
    "spoilt",
]
Expected = Literal["completed", "failed", "cancelled", "either"]
# Of all jobs, those of a chain's later steps included.
SHARES: dict[Workload, float] = {
    "plain": 0.721,
    "ledger": 0.055,
    "keyed": 0.06,
    "limited": 0.02,
    "story": 0.05,
    "chain": 0.085,
    "version": 0.004,
    "typed": 0.005,
}
LANES = 4
KEYS = 12
STEPS = 3
OCCUPYING = 4
PATIENCE = 3.0
_PROMISE = """
    INSERT INTO chaos.promise (job, batch, n, workload, key, expected) SELECT job, %s, n, workload, key, expected
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[]) AS p (job, n, workload, key, expected)
"""
_AGE = "UPDATE holdfast.job SET created_at = created_at - interval '1 hour' WHERE id = ANY (%s)"


class Promised(NamedTuple):
    """A job to be, and what is promised of it."""

    job: NewJob[Any]
    workload: Workload
    n: int = 0
    key: str | None = None
    expected: Expected = "completed"


@dataclass(slots=True)
class Tally:
    """Counts of the lanes' work."""

    jobs: int = 0
    """Promised, and acknowledged; a chain's later steps included."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """By transaction: how many promises its commit was acknowledged with."""
    rolled_back: int = 0
    unknown: int = 0
    """Commits whose answer never came."""
    errors: Counter[str] = field(default_factory=Counter)
    """By type."""


class Producer:
    """`async with` opens its lanes; they produce at `rate` until `jobs` are promised."""

    def __init__(self, ground: Reachable, jobs: int, dice: random.Random, *, rate: float = 1000) -> None:
        self.jobs = jobs
        self.rate = rate
        """Jobs per second, over all lanes. May be changed at any time."""
        self.paused = False
        self.tally = Tally()
        self.url = ground.url
        self._size = max(10, min(200, jobs // 60))
        self._batch = 0
        self._n = 0
        self._dice = dice
        self._budget = 0.0
        self._filled_at = time.monotonic()
        self._every: list[Lane] = []
        self._lanes = [self.lane() for _ in range(LANES)]
        self._idle: list[Lane] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(lane.run()) for lane in self._lanes]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._every:
            await lane.close()

    def lane(self) -> Lane:
        """Return one more lane for the caller's own use; it is closed with the others."""
        self._every.append(Lane(self, len(self._every), random.Random(self._dice.random())))
        return self._every[-1]

    @property
    def done(self) -> bool:
        return self.tally.jobs >= self.jobs

    async def finished(self) -> None:
        """Return when everything is promised; an error of a lane is raised."""
        await asyncio.gather(*self._tasks)

    async def promise(self, *promised: Promised) -> list[int]:
        """Enqueue something in particular, once a commit was acknowledged; answer with the ids of the jobs.

        A commit whose answer was lost is repeated: all of them are promised, and all must come true.
        """
        lane = self._idle.pop() if self._idle else self.lane()
        while (ids := await lane.commit(promised)) is None:  # noqa: ASYNC110 - a server is waited for
            await asyncio.sleep(0.05)
        self._idle.append(lane)
        return ids

    def occupy(self, workers: int, seconds: float) -> None:
        """Let the workers hold jobs for so long, as soon as the server answers: enough that each may have some."""
        held = [Promised(application.plain.new(seconds), "plain", self.number()) for _ in range(OCCUPYING * workers)]
        self._tasks.append(asyncio.create_task(self.promise(*held)))

    def number(self) -> int:
        self._n += 1
        return self._n

    def batch(self) -> int:
        self._batch += 1
        return self._batch

    async def allowance(self, jobs: int) -> None:
        """Wait until so many more may be produced at this rate."""
        while True:
            now = time.monotonic()
            passed, self._filled_at = now - self._filled_at, now
            if not self.paused:
                self._budget = min(self._budget + passed * self.rate, max(self.rate, 2 * jobs))
            if self._budget >= jobs:
                self._budget -= jobs
                return
            await asyncio.sleep(0.02)

    @property
    def size(self) -> int:
        """How many plain jobs are enqueued at once."""
        return self._size


class Lane:
    """One connection, one transaction after the other. An order key belongs to one lane: its order is known."""

    def __init__(self, producer: Producer, number: int, dice: random.Random) -> None:
        self._producer = producer
        self._number = number
        self._dice = dice
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._epoch = 0
        self._places: dict[str, int] = {}
        self._heads: list[int] = []

    async def run(self) -> None:
        kinds = list(SHARES)
        size = self._producer.size
        few, groups = max(4, size // 10), max(1, size // 50)
        sizes = {
            "plain": size,
            "ledger": few,
            "keyed": few,
            "limited": few,
            "story": few,
            "chain": groups * (2 * STEPS + 1),
            "version": groups,
            "typed": groups,
        }
        weights = [SHARES[kind] / sizes[kind] for kind in kinds]
        while not self._producer.done:
            kind = self._dice.choices(kinds, weights)[0]
            await self._producer.allowance(sizes[kind])
            if kind == "chain":
                await self._chains(groups)
            else:
                await self.commit([getattr(self, f"_{kind}")() for _ in range(sizes[kind])], whim=self._whim())

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            sever(conn)
            await conn.close()

    async def commit(self, promised: Sequence[Promised], *, whim: float | None = 0) -> list[int] | None:
        """Enqueue and promise in one transaction; None when that is rolled back or the answer is unknown.

        `whim`: hold the transaction open for so many seconds; None: roll it back.
        """
        tally, batch = self._producer.tally, self._producer.batch()
        committing = False
        overdue = None
        try:
            conn = await self._connected()
            overdue = asyncio.get_running_loop().call_later(PATIENCE + (whim or 0), sever, conn)
            handles = await app.enqueue_many(conn, [one.job for one in promised])
            ids = [handle.id for handle in handles]
            await self._age([job for job, one in zip(ids, promised, strict=True) if one.workload == "version"], conn)
            await conn.execute(
                _PROMISE,
                [
                    batch,
                    ids,
                    *(
                        list(column)
                        for column in zip(*((p.n, p.workload, p.key, p.expected) for p in promised), strict=True)
                    ),
                ],
            )
            if whim is None:
                await conn.rollback()
                tally.rolled_back += len(ids)
                return None
            await asyncio.sleep(whim)
            committing = True
            await conn.commit()
        except (*LOST, TimeoutError, psycopg.Error) as error:
            tally.errors[type(error).__name__] += 1
            await self.close()
            if committing:
                # It may come true yet, and later than what we enqueue next: so no key may be used again.
                tally.unknown += 1
                self._epoch += 1
                self._places.clear()
            await asyncio.sleep(self._dice.uniform(0.05, 0.2))
            return None
        finally:
            if overdue is not None:
                overdue.cancel()
        tally.acknowledged[batch] = len(ids)
        tally.jobs += self._weight(promised)
        return ids

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            async with asyncio.timeout(PATIENCE):
                params = watched(conninfo_to_dict(self._producer.url) | {"application_name": "producer"}, PATIENCE)
                self._conn = await psycopg.AsyncConnection.connect(make_conninfo(**params), prepare_threshold=None)
        return self._conn

    async def _age(self, jobs: list[int], conn: psycopg.AsyncConnection[Any]) -> None:
        """Backdate these jobs: a worker that cannot read one must not give it up because of its age."""
        if jobs:
            await conn.execute(_AGE, [jobs])

    def _weight(self, promised: Sequence[Promised]) -> int:
        return sum(STEPS if one.workload == "chain" else 1 for one in promised)

    def _whim(self) -> float | None:
        fate = self._dice.random()
        if fate < 0.06:
            return None
        return self._dice.uniform(0.05, 1.0) if fate < 0.12 else 0.0

    def _seconds(self) -> float:
        """Most take no time; some outlast a heartbeat, few a lease."""
        fate = self._dice.random()
        if fate < 0.96:
            return 0
        if fate < 0.99:
            return 0.02
        return round(self._dice.uniform(0.2, 1.2) if fate < 0.9985 else self._dice.uniform(2, 4), 3)

    def _plain(self) -> Promised:
        n = self._producer.number()
        if self._dice.random() < 0.01:
            return Promised(application.in_thread.new(min(self._seconds(), 1)), "plain", n)
        return Promised(application.plain.new(self._seconds(), stumbles=self._dice.random() < 0.01), "plain", n)

    def _ledger(self) -> Promised:
        seconds = self._dice.choice([0, 0, 0, 0, 0, 0, 0, 0.01, 0.05, 0.5])
        n = self._producer.number()
        return Promised(application.ledger.new(self._dice.randrange(1, 1000), seconds), "ledger", n)

    def _keyed(self) -> Promised:
        key = f"{self._number}.{self._epoch}.{self._dice.randrange(KEYS)}"
        place = self._places[key] = self._places.get(key, 0) + 1
        seconds = self._dice.choice([0, 0, 0, 0, 0, 0, 0, 0, 0.02, 0.2])
        job = application.keyed.new(seconds, stumbles=self._dice.random() < 0.03)
        return Promised(job.options(order_key=OrderKey(key)), "keyed", place, key)

    def _limited(self) -> Promised:
        seconds = self._dice.choice([0, 0, 0, 0, 0, 0, 0, 0, 0.02, 0.2])
        job = application.limited.new(str(self._dice.randrange(KEYS)), seconds, stumbles=self._dice.random() < 0.03)
        return Promised(job, "limited", self._producer.number())

    def _story(self) -> Promised:
        return Promised(application.story.new(), "story", self._producer.number())

    def _version(self) -> Promised:
        # While no live worker can read it, it may become a dead letter; the checks know which workers were alive.
        return Promised(versions.newer.new("newest"), "version", self._producer.number(), expected="either")

    def _typed(self) -> Promised:
        n = self._producer.number()
        return Promised(typed.typed.new(n), "typed", n)

    async def _chains(self, groups: int) -> None:
        """Chains by twos; and a moment later, when that is known to have committed, what comes after each two."""
        heads = [self._chain() for _ in range(2 * groups)]
        ids = await self.commit(heads, whim=self._whim())
        if ids is not None:
            pairs = zip(ids[::2], ids[1::2], strict=True)
            await self.commit([self._join(pair) for pair in pairs], whim=self._whim())

    def _chain(self) -> Promised:
        job = application.step.new(STEPS - 1, seconds=self._dice.choice([0, 0, 0, 0.05]))
        return Promised(job, "chain", self._producer.number())

    def _join(self, after: tuple[int, int]) -> Promised:
        job = application.join.new().options(after=after)
        return Promised(job, "join", self._producer.number(), ",".join(map(str, after)))
