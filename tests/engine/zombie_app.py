"""A worker in a process of its own, that can be stopped, killed and frozen. Says on stdout what happens to its jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import psycopg

from holdfast import Holdfast, Job, Retry, Step
from holdfast._engine.jobs import heartbeat
from tests.kit.pace import AT_ONCE, BRIEF

app = Holdfast(os.environ.get("ZOMBIE_URL"))
LONG = timedelta(minutes=5)
OFTEN = Retry(max_attempts=1000, base=timedelta(0), jitter=timedelta(0))


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - read by the test


@app.job("wait", retry=AT_ONCE, max_runtime=LONG)
async def wait(job: Job[Any], seconds: float) -> str:
    say("started", job.id, job.attempt)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        say("aborted", job.id, job.signal.reason)
        raise
    say("ended", job.id)
    return os.environ["ZOMBIE_NAME"]


@app.job("wait.in.thread", retry=AT_ONCE, max_runtime=LONG)
def wait_in_thread(job: Job[Any], seconds: float) -> str:
    say("started", job.id, job.attempt)
    if job.signal.wait_in_thread(seconds):
        say("aborted", job.id, job.signal.reason)
    return os.environ["ZOMBIE_NAME"]


@app.job("freeze", retry=AT_ONCE, max_runtime=LONG)
async def freeze(job: Job[Any]) -> str:
    """Stop the whole process at the first attempt, and end in the moment in which it is woken."""
    say("started", job.id, job.attempt)
    if job.attempt > 1:
        await asyncio.sleep(60)
    os.kill(os.getpid(), signal.SIGSTOP)
    say("ended", job.id, job.attempt)
    return os.environ["ZOMBIE_NAME"]


@app.job("crash", retry=AT_ONCE)
async def crash(job: Job[Any]) -> None:
    """Kill the process, as a segmentation fault or the kernel's memory killer would."""
    say("started", job.id, job.attempt)
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("transfer", retry=OFTEN, max_runtime=LONG)
async def transfer(job: Job[Any], amount: int, seconds: float) -> int:
    """Move an amount from one account to another, and be done with it, in one transaction."""
    async with await psycopg.AsyncConnection.connect(os.environ["ZOMBIE_URL"]) as conn:
        await conn.execute("INSERT INTO entry (job, account, amount) VALUES (%s, 'a', %s)", [job.id, -amount])
        await asyncio.sleep(seconds)
        await conn.execute("INSERT INTO entry (job, account, amount) VALUES (%s, 'b', %s)", [job.id, amount])
        return await job.complete(conn, amount)


async def book(conn: psycopg.AsyncConnection[Any], story: int, n: int) -> int:
    await conn.execute("INSERT INTO entry (story, n) VALUES (%s, %s)", [story, n])
    await asyncio.sleep(0.005)
    return n


async def look(n: int) -> int:
    await asyncio.sleep(0.005)
    return n


@app.job("part", retry=OFTEN)
async def part(n: int) -> int:
    await asyncio.sleep(0.01)
    return n


@app.job("story", retry=OFTEN, max_runtime=LONG)
async def story(job: Job[Any], number: int) -> int:
    """Book four entries, exactly once, with steps, a sleep and other jobs between them. It returns 18."""
    total = 0
    for n in range(4):
        async with await psycopg.AsyncConnection.connect(os.environ["ZOMBIE_URL"]) as conn:
            total += await job.step_on(conn, Step("book", key=n), book, number, n)
        total += await job.step(Step("look", key=n), look, n)
        await job.sleep(Step("nap", key=n), 0.01)
    parts = await job.gather("parts", *[part.new(n) for n in range(4)])
    return total + sum(parts)


async def main() -> None:
    async with app.worker(id=os.environ["ZOMBIE_NAME"], queues={"default": 4}, **BRIEF):
        say("ready")
        await asyncio.to_thread(sys.stdin.read)
    say("stopped")


if __name__ == "__main__":
    # Only who is frozen may lose what it holds, not who waits for a server that stands still.
    heartbeat.MISSED_TICKS = 1_000
    asyncio.run(main())
