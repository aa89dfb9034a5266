"""An application for a measured worker. It is copied to a folder of its own, and imported there by a process."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import Any

from holdfast import Fail, Holdfast, Job
from holdfast._model.retry import Retry

app = Holdfast()


@app.job("order.pack", queue="packing")
async def pack(job: Job[Any], n: int = 0) -> int:
    return n


@app.job("order.spoil", retry=Retry(max_attempts=3, base=timedelta(0), jitter=timedelta(0)))
async def spoil(job: Job[Any]) -> None:
    raise ValueError("spoilt")


@app.job("order.refuse")
async def refuse(job: Job[Any]) -> None:
    raise Fail("no such order")


@app.job("order.wait")
async def wait(job: Job[Any]) -> None:
    await asyncio.Event().wait()


@app.job("order.block")
async def block(job: Job[Any], seconds: float) -> None:
    """Does what no handler should."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


if os.environ.get("SHOP_INSTRUMENTED"):
    from prometheus_client import REGISTRY

    from holdfast.telemetry import instrument

    instrument(app, registry=REGISTRY)
