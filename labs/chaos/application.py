"""The application whose jobs must not be lost: its kinds, its singleton, and what they leave for the oracle."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from holdfast import Continue, Every, Holdfast, Job, Limit, Retry, Step
from holdfast._engine.address import connect
from holdfast._engine.link import sever

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import psycopg

    from holdfast import Tick

# A handler that was killed or frozen many times over is still not at its end.
RETRY = Retry(
    max_attempts=200,
    base=timedelta(milliseconds=20),
    factor=1.5,
    maximum=timedelta(milliseconds=500),
    jitter=timedelta(milliseconds=20),
)
RARE = tuple(f"rare.{number:02}" for number in range(64))
"""Queues in which there is seldom anything. With them there are more queues than one claim takes jobs."""
QUEUES = {
    "plain": 16,
    "ledger": 4,
    "keyed": 8,
    "chain": 8,
    "probe": 2,
    "trouble": 2,
    "event": 4,
    "version": 4,
    "limited": 8,
    "story": 4,
}
QUEUES |= dict.fromkeys(RARE, 1)
# A statement that takes longer will not be answered any more.
PATIENCE = 2.0
# A process in which a pause of 10 ms took this long, in seconds, has stood still.
STANDSTILL = 0.5


class Signed(TypedDict):
    """The result of a plain handler: the claim under which it ran."""

    attempt: int
    token: int
    worker: str


class Book:
    """A file that gets a short line for each start and end. It outlives the process, whatever ends that."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._fd = os.open(folder / f"{worker}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begun(self, job: Job[Any]) -> None:
        os.write(self._fd, b"b %d %d %d %d\n" % (job.id, job.attempt, job.token, time.monotonic_ns()))

    def ended(self, job: Job[Any]) -> None:
        os.write(self._fd, b"e %d %d %d %d\n" % (job.id, job.attempt, job.token, time.monotonic_ns()))


class Lines:
    """A few connections for the handlers' own writes, made when they are needed."""

    def __init__(self, url: str, limit: int = 4) -> None:
        self._url = url
        self._room = asyncio.Semaphore(limit)
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        """Yield a connection in a transaction, that commits at the end; one that failed is not used again."""
        async with self._room:
            conn = self._idle.pop() if self._idle else None
            if conn is None or conn.closed:
                async with asyncio.timeout(2 * PATIENCE):
                    conn = await connect(self._url, seconds=2 * PATIENCE, autocommit=False, prepare_threshold=None)
            overdue = asyncio.get_running_loop().call_later(2 * PATIENCE, sever, conn)
            try:
                yield conn
                await conn.commit()
            except BaseException:
                sever(conn)
                await conn.close()
                raise
            finally:
                overdue.cancel()
            self._idle.append(conn)


class State:
    """Shared by all handlers of a worker."""

    def __init__(self, worker: str, book: Book, lines: Lines) -> None:
        self.worker = worker
        self.book = book
        self.lines = lines

    def signed(self, job: Job[Any]) -> Signed:
        return {"attempt": job.attempt, "token": job.token, "worker": self.worker}


app = Holdfast()


@app.job("plain", queue="plain", retry=RETRY)
async def plain(job: Job[State], seconds: float = 0, stumbles: bool = False) -> Signed:  # noqa: FBT001, FBT002
    """Do nothing, or sleep; one that stumbles fails the first time."""
    job.state.book.begun(job)
    if seconds:
        await asyncio.sleep(seconds)
    if stumbles and job.attempt == 1:
        raise RuntimeError("stumbled")
    return job.state.signed(job)


@app.job("thread", queue="plain", retry=RETRY)
def in_thread(job: Job[State], seconds: float = 0) -> Signed:
    """Run like `plain`, but in a thread, which cannot be cancelled."""
    job.state.book.begun(job)
    job.signal.wait_in_thread(seconds)
    return job.state.signed(job)


@app.job("probe", queue="probe", retry=RETRY)
async def probe(job: Job[State]) -> Signed:
    """Show that workers work, and how soon."""
    job.state.book.begun(job)
    return job.state.signed(job)


@app.job("ledger", queue="ledger", retry=RETRY)
async def ledger(job: Job[State], amount: int, seconds: float = 0) -> Signed:
    """Move an amount from one account to another, and be done with it, in one transaction."""
    job.state.book.begun(job)
    signed = job.state.signed(job)
    async with job.state.lines.transaction() as conn:
        await write(conn, job, signed, -amount)
        await asyncio.sleep(seconds)
        await write(conn, job, signed, amount)
        return await job.complete(conn, signed)


async def write(conn: psycopg.AsyncConnection[Any], job: Job[State], signed: Signed, amount: int) -> None:
    """Enter an amount into the ledger, with the claim under which that is done."""
    await conn.execute(
        "INSERT INTO chaos.ledger (job, amount, token, attempt, worker) VALUES (%s, %s, %s, %s, %s)",
        [job.id, amount, signed["token"], signed["attempt"], signed["worker"]],
    )


@app.job("keyed", queue="keyed", retry=RETRY)
async def keyed(job: Job[State], seconds: float = 0, stumbles: bool = False) -> Signed:  # noqa: FBT001, FBT002
    """Do as `plain` does; its order key does the rest."""
    job.state.book.begun(job)
    if seconds:
        await asyncio.sleep(seconds)
    if stumbles and job.attempt == 1:
        raise RuntimeError("stumbled")
    job.state.book.ended(job)
    return job.state.signed(job)


app.limit("wide", concurrency=5)


@app.job("limited", queue="limited", retry=RETRY, limits=[Limit(concurrency=2, by="key"), "wide"])
async def limited(
    job: Job[State],
    key: str,  # noqa: ARG001 - its limit is by it
    seconds: float = 0,
    stumbles: bool = False,  # noqa: FBT001, FBT002
) -> Signed:
    """Do as `plain` does, few at a time."""
    job.state.book.begun(job)
    if seconds:
        await asyncio.sleep(seconds)
    if stumbles and job.attempt == 1:
        raise RuntimeError("stumbled")
    return job.state.signed(job)


@app.job("step", queue="chain", retry=RETRY)
async def step(job: Job[State], left: int, seconds: float = 0) -> Signed | Continue[Signed]:
    """Go on until no step is left; every other one within a transaction of its own."""
    job.state.book.begun(job)
    if seconds:
        await asyncio.sleep(seconds)
    job.state.book.ended(job)
    if not left:
        return job.state.signed(job)
    following = Continue(step.new(left - 1, seconds=seconds))
    if left % 2:
        return following
    signed = job.state.signed(job)
    async with job.state.lines.transaction() as conn:
        await write(conn, job, signed, 0)
        return await job.complete(conn, following)


@app.job("join", queue="chain", retry=RETRY)
async def join(job: Job[State]) -> list[int]:
    """Answer with the chains that it came after, all of which must have ended."""
    job.state.book.begun(job)
    for blocker in job.blockers:
        step.result(blocker)
    return [blocker.chain_id for blocker in job.blockers]


@app.job("story", queue="story", retry=RETRY)
async def story(job: Job[State]) -> list[int]:
    """Draw a number, and enter it in the transaction that records it, five times with a pause; return the numbers."""
    job.state.book.begun(job)
    drawn = []
    for place in range(5):
        number = await job.step(Step("draw", key=place), draw)
        async with job.state.lines.transaction() as conn:
            drawn.append(await job.step_on(conn, Step("enter", key=place), enter, job.id, place, number))
        if place == 2:
            await job.sleep("pause", 0.05)
    return drawn


async def draw() -> int:
    """Return another number each time, so that a step that was recorded and ran again would show."""
    return random.getrandbits(50)


async def enter(conn: psycopg.AsyncConnection[Any], job: int, place: int, number: int) -> int:
    """Enter a number of a story."""
    await conn.execute("INSERT INTO chaos.entry (job, place, number) VALUES (%s, %s, %s)", [job, place, number])
    return number


@app.runner("only", every=Every(timedelta(milliseconds=700)), singleton=True)
async def only(tick: Tick) -> dict[str, int]:
    """Write when it begins and when it ends; no other replica may do so in between."""
    state: State = tick.state
    run, paused = uuid.uuid4().hex, False

    async def note(what: str) -> None:
        async with state.lines.transaction() as conn:
            await conn.execute(
                "INSERT INTO chaos.singleton (run, worker, what) VALUES (%s, %s, %s)", [run, state.worker, what]
            )

    await note("begun")
    for _ in range(10):
        before = time.monotonic()
        await asyncio.sleep(0.01)
        paused = paused or time.monotonic() - before > STANDSTILL
    tick.signal.raise_if_aborted()
    await note("paused" if paused else "ended")
    return {"runs": 1}
