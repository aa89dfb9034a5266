"""Applications with runners, for `holdfast tick`. Copied to a folder of its own, and imported there by processes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job

if TYPE_CHECKING:
    from holdfast._engine.runner import Counts, Tick

log = logging.getLogger("cycles")
app = Holdfast()
failing = Holdfast()


@app.job("quick")
async def quick(job: Job[Any]) -> None:
    """Does nothing."""


@app.job("endless")
async def endless(job: Job[Any]) -> None:
    log.info("endless")
    await asyncio.Event().wait()


@app.runner("first")
async def first(tick: Tick) -> Counts:
    return {"seen": 2, "left": 0}


@app.runner("second")
def second(tick: Tick) -> Counts:
    return {"items": tick.budget.limit(1_000_000)}


@failing.runner("broken")
async def broken(tick: Tick) -> Counts:
    raise ValueError("it broke, and the password=hush")


@failing.runner("waiting")
async def waiting(tick: Tick) -> Counts:
    """Goes on until it is asked to stop."""
    await tick.signal.wait()
    return {"waited": 1}


@failing.runner("after")
async def after(tick: Tick) -> Counts:
    return {"ran": 1}
