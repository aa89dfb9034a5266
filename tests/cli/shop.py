"""An application for the commands to run. It is copied to a folder of its own, and imported there by processes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

import psycopg

from holdfast import Holdfast, Job
from holdfast._model.retry import Retry

GATE = 7

log = logging.getLogger("shop")
app = Holdfast()


@app.job("quick")
async def quick(job: Job[Any], n: int = 0) -> int:
    log.info("quick")
    return n


@app.job("gated")
async def gated(job: Job[Any]) -> str:
    """Ends when the gate is no longer locked."""
    log.info("gated")
    async with await psycopg.AsyncConnection.connect(os.environ.get("GATE_URL") or os.environ["DATABASE_URL"]) as conn:
        await conn.execute("SELECT pg_advisory_xact_lock_shared(%s)", [GATE])
    return "passed"


@app.job("endless", queue="slow")
async def endless(job: Job[Any]) -> None:
    log.info("endless")
    await asyncio.Event().wait()


@app.job("deaf", queue="slow")
def unresponsive(job: Job[Any]) -> None:
    """Looks at no signal."""
    log.info("deaf")
    threading.Event().wait()


@app.job("broken", retry=Retry(max_attempts=1))
async def broken(job: Job[Any]) -> None:
    raise ValueError("it broke, and the password=hush")


@app.job("stubborn", queue="slow")
async def stubborn(job: Job[Any]) -> None:
    """Swallows its cancellation."""
    log.info("stubborn")
    await _ignore_cancellation()


@app.job("leaving", queue="slow")
async def leaving(job: Job[Any]) -> None:
    """Leaves a task behind that swallows its cancellation."""
    _left.append(asyncio.create_task(_ignore_cancellation()))
    log.info("leaving")


@app.job("borrowing", queue="slow")
async def borrowing(job: Job[Any]) -> None:
    """Waits in a thread of the event loop's own."""
    log.info("borrowing")
    await asyncio.to_thread(threading.Event().wait)


@app.job("blocking", queue="slow")
async def blocking(job: Job[Any]) -> None:
    """Lets nothing else run in the event loop."""
    log.info("blocking")
    threading.Event().wait()


_left: list[asyncio.Task[None]] = []


async def _ignore_cancellation() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.info("cancellation ignored")
