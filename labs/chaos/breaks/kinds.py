"""Kinds that bring a broken build to the point where it shows."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Continue, Job, Limit, OrderKey, Unique
from holdfast._engine.jobs import finish
from holdfast._engine.runner import Runner
from holdfast._model.outcome import Completed
from labs.chaos.application import QUEUES, RETRY, STANDSTILL, Signed, State, app, only

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from holdfast._store.finish import Answers, Ending
    from holdfast._store.statement import Statement

_ENTRY = "INSERT INTO chaos.ledger (job, amount, token, attempt, worker) VALUES (%s, %s, %s, %s, %s)"
_CLAIM = (
    "SELECT j.lock_token, w.name FROM holdfast.job j LEFT JOIN holdfast.worker w ON w.id = j.locked_by WHERE j.id = %s"
)
RUNNER = "CHAOS_RUNNER"
"""The state of the singleton runner: `busy` or `gone`."""
ONLY = "CHAOS_ONLY"
"""The one queue that the workers serve. Default: all."""
SPOILS = "CHAOS_SPOILS"
"""Where the outcome of `break.spoilt` is refused: by the `server` or the `client`."""
SPOILT = {
    "the client does not encode it": "",
    "the server refuses it": "RAISE check_violation USING CONSTRAINT = 'mine';",
    "its statement takes too long": "PERFORM pg_sleep(60);",
    "its statement is cancelled": "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(1);",
    "a row is locked for ever": "PERFORM FROM chaos.kept FOR UPDATE;",
}
"""Why an outcome cannot be written, and what a trigger does then."""
SHORT = 0.3
"""The limit of a batch of outcomes there, in seconds."""
HELD = "held"
"""The unique key of what follows."""
BRIEFLY = timedelta(seconds=2)
"""For so long may the handler run before that; not the writing of how it ended."""
# The longest wait to become a zombie, in seconds.
ZOMBIE = 12.0


class Bulky(Signed):
    """A result of 100 kB."""

    filler: str


@app.job("break.stubborn", queue="ledger", retry=RETRY, max_runtime=timedelta(seconds=1))
def stubborn(job: Job[State], again: float = 0.8, zombie: str | None = None) -> Signed:
    """Ignore every signal until another worker has the job, then complete it all the same; the next run is honest.

    `zombie`: not the first attempt does so but that of this worker, whose claim will not have been: it notes nothing.
    """
    if zombie != job.state.worker:
        job.state.book.begun(job)
    signed = job.state.signed(job)
    url = os.environ["CHAOS_URL"]
    if zombie == job.state.worker or (zombie is None and job.attempt == 1):
        _outlive(url, job.id, (job.token, job.state.worker))
    else:
        time.sleep(again)
    with closing(psycopg.connect(url)) as conn:
        for amount in (-1, 1):
            conn.execute(_ENTRY, [job.id, amount, signed["token"], signed["attempt"], signed["worker"]])
        job.sync.complete(conn, signed)
        conn.commit()
    return signed


def _outlive(url: str, job: int, ours: tuple[int, str]) -> None:
    """Return when the claim under which this runs has been followed by another."""
    deadline = time.monotonic() + ZOMBIE
    while time.monotonic() < deadline:
        try:
            with closing(psycopg.connect(url, autocommit=True)) as conn:
                while time.monotonic() < deadline:
                    claim = conn.execute(_CLAIM, [job]).fetchone()
                    if claim is None or (claim[1] is not None and claim != ours):
                        return
                    time.sleep(0.03)
        except psycopg.OperationalError:
            time.sleep(0.1)


@asynccontextmanager
async def _own_transaction() -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
    async with await psycopg.AsyncConnection.connect(os.environ["CHAOS_URL"], prepare_threshold=None) as conn:
        yield conn


@app.job("break.linger", queue="ledger", retry=RETRY)
async def linger(job: Job[State], seconds: float) -> Signed:
    """Complete, and be slow to commit."""
    job.state.book.begun(job)
    signed = job.state.signed(job)
    async with _own_transaction() as conn:
        for amount in (-1, 1):
            await conn.execute(_ENTRY, [job.id, amount, signed["token"], signed["attempt"], signed["worker"]])
        await job.complete(conn, signed)
        await asyncio.sleep(seconds)
    job.state.book.ended(job)
    return signed


@app.job("break.bulky", queue="chain", retry=RETRY)
async def bulky(job: Job[State], seconds: float) -> Bulky:
    """Return a large result."""
    job.state.book.begun(job)
    await asyncio.sleep(seconds)
    job.state.book.ended(job)
    return {**job.state.signed(job), "filler": os.urandom(50_000).hex()}


@app.job("break.block", queue="plain", retry=RETRY)
async def block(job: Job[State], seconds: float) -> Signed:
    """Keep the event loop from everybody else."""
    job.state.book.begun(job)
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it
    return job.state.signed(job)


@app.job("break.patient", queue="plain", retry=RETRY)
async def patient(job: Job[State], seconds: float) -> Signed:
    """Take long, in small steps, and note the end unless the process had stood still."""
    job.state.book.begun(job)
    until, before = time.monotonic() + seconds, time.monotonic()
    paused = False
    while before < until:
        await asyncio.sleep(0.01)
        paused = paused or time.monotonic() - before > STANDSTILL
        before = time.monotonic()
    if not paused:
        job.state.book.ended(job)
    return job.state.signed(job)


@app.job("break.follow", queue="plain", retry=RETRY)
async def follow(job: Job[State]) -> Signed:
    """Come after `go_on`, one at a time."""
    job.state.book.begun(job)
    return job.state.signed(job)


@app.job("break.go_on", queue="plain", retry=RETRY, max_runtime=BRIEFLY)
async def go_on(job: Job[State], seconds: float) -> Continue[Signed]:
    """Continue with a job whose unique key another job may have."""
    job.state.book.begun(job)
    await asyncio.sleep(seconds)
    return Continue(follow.new().options(unique=Unique(HELD)))


@app.job("break.gated", queue="plain", retry=RETRY)
async def gated(job: Job[State], gate: int, into: str | None = None) -> Signed | Continue[Signed]:
    """Wait until the gate, an advisory lock, is open; then end, or continue in an order key."""
    job.state.book.begun(job)
    is_open = False
    while not is_open:
        await asyncio.sleep(0.05)
        async with job.state.lines.transaction() as conn:
            row = await (await conn.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", [gate])).fetchone()
            is_open = row is not None and row[0]
    job.state.book.ended(job)
    return job.state.signed(job) if into is None else Continue(follow.new().options(order_key=OrderKey(into)))


@app.job("break.single", queue="limited", retry=RETRY, limits=[Limit(concurrency=1)])
async def single(job: Job[State], seconds: float = 0) -> Signed:
    """Run alone."""
    job.state.book.begun(job)
    await asyncio.sleep(seconds)
    return job.state.signed(job)


@app.job("break.slow", queue="limited", retry=RETRY, limits=[Limit(rate="10/s", burst=5)])
async def slow(job: Job[State]) -> Signed:
    """Start ten times a second."""
    job.state.book.begun(job)
    return job.state.signed(job)


@app.job("break.turn", queue="limited", retry=RETRY, tenant="account")
async def turn(job: Job[State], account: str) -> Signed:  # noqa: ARG001 - the tenant
    """Take turns."""
    job.state.book.begun(job)
    return job.state.signed(job)


@app.job("break.spoilt", queue="plain", retry=RETRY)
async def spoilt(job: Job[State], seconds: float) -> Signed:
    """End like any other; its outcome cannot be written."""
    job.state.book.begun(job)
    await asyncio.sleep(seconds)
    job.state.book.ended(job)
    return job.state.signed(job)


def _refuse_to_encode() -> None:
    """Let the driver refuse the results of `spoilt`, as it does where an encoding lacks a character."""
    finish_jobs = finish.finish_jobs  # type: ignore[attr-defined]

    def refusing(worker: int, endings: Sequence[Ending], *, careful: bool = False) -> Statement[Answers]:
        if any(end.claimed.kind == spoilt.name and isinstance(end.outcome, Completed) for end in endings):
            "\u20ac".encode("latin-1")
        return finish_jobs(worker, endings, careful=careful)

    finish.finish_jobs = refusing  # type: ignore[attr-defined]


match os.environ.get(SPOILS):
    case "server":
        finish.BATCH_SECONDS = SHORT
    case "client":
        _refuse_to_encode()
match os.environ.get(RUNNER):
    case "busy":
        # Without a timetable, each replica runs it again and again, and its lock is all that keeps them apart.
        app._runners["only"] = Runner("only", only, singleton=True)
    case "gone":
        del app._runners["only"]
if served := os.environ.get(ONLY):
    for queue in QUEUES.keys() - {served}:
        del QUEUES[queue]
    # Workers of many kinds claim nothing by plain claims.
    for name in [name for name in app._kinds if name.startswith("break.") and name != gated.name]:
        del app._kinds[name]
