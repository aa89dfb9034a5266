"""Handlers in processes that import this module only once a gate is open."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

from holdfast import Holdfast, Retry

GATE = "TEST_GATE"
app = Holdfast()

while multiprocessing.parent_process() is not None and not Path(os.environ[GATE]).exists():
    time.sleep(0.01)


@app.job("slow.pid", executor="process", queue="slow", max_runtime=0.5, retry=Retry(max_attempts=1))
def pid(number: int) -> int:
    time.sleep(0.1)
    return os.getpid()


@app.job("slow.mixed", executor="process", queue="mixed")
def mixed() -> int:
    return os.getpid()


@app.job("slow.quick", queue="mixed")
async def quick() -> int:
    return os.getpid()


@app.job("slow.hang", executor="process", queue="hang", max_runtime=0.1, retry=Retry(max_attempts=3, base=0, jitter=0))
def hang() -> None:
    time.sleep(100)
