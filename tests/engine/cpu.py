"""Handlers that run in processes of their own: found by name, so they stand in a module."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import Fail, Holdfast, Job, Retry
from tests.kit.pace import AT_ONCE

app = Holdfast()


@app.job("cpu.where", executor="process")
def where(job: Job[Any], text: str) -> dict[str, object]:
    return {"pid": os.getpid(), "text": text, "job": job.id, "attempt": job.attempt}


@app.job("cpu.raise", executor="process", retry=AT_ONCE)
def fail(job: Job[Any], why: str) -> None:
    raise Fail(why)


@app.job("cpu.exit", executor="process", retry=AT_ONCE)
def leave(job: Job[Any], code: int) -> int:
    if job.attempt == 1:
        raise SystemExit(code)
    return job.attempt


@app.job("cpu.die", executor="process", retry=AT_ONCE)
def die(job: Job[Any]) -> int:
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job.attempt


class Untravelled(Exception):  # noqa: N818 - what it is
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@app.job("cpu.odd", executor="process", retry=AT_ONCE)
def odd(job: Job[Any]) -> None:
    raise Untravelled(1, 2)


@app.job("cpu.retried", executor="process", retry=replace(AT_ONCE, on=(Untravelled,)))
def retried(job: Job[Any], error: str) -> int:
    if job.attempt == 1:
        raise Untravelled(1, 2) if error == "untravelled" else OSError("down")
    return job.attempt


@app.job("cpu.picky_death", executor="process", retry=replace(AT_ONCE, on=()))
def picky_death(job: Job[Any]) -> int:
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job.attempt


@app.job("cpu.again", executor="process", retry=replace(AT_ONCE, on=()))
def again(job: Job[Any], how: str) -> int | Retry.again:
    if how == "raised":
        raise Retry.again(0) from Untravelled(job.attempt, 2)
    return Retry.again(0)


@app.job("cpu.time", executor="process", max_runtime=60)
def time_left(job: Job[Any]) -> float:
    return job.signal.seconds_left


@dataclass
class Odd:
    value: int


@app.job("cpu.result", executor="process", retry=AT_ONCE)
def unfit(job: Job[Any]) -> object:
    return Odd(1)


@app.job("cpu.long", executor="process")
def long(job: Job[Any], started: str) -> None:
    Path(started).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


@app.job("cpu.missing", executor="process", retry=AT_ONCE)
def missing(job: Job[Any], path: str) -> str:
    return Path(path).read_text()


@app.job("cpu.hurried", executor="process", retry=AT_ONCE)
def hurried(job: Job[Any], started: str) -> str:
    if job.attempt == 1:
        Path(started).write_text(str(os.getpid()))
        time.sleep(60)
    return "in time"


@app.job("cpu.patient", executor="process", retry=AT_ONCE)
def patient(job: Job[Any], started: str, go: str) -> int:
    """Ends when the second file is there."""
    Path(started).write_text(str(os.getpid()))
    while not Path(go).exists():
        time.sleep(0.01)
    return job.attempt


@app.job("cpu.parent", executor="process", retry=AT_ONCE)
def parent(job: Job[Any]) -> int:
    """Starts a program, and stops it as usual."""
    with subprocess.Popen(["sleep", "60"]) as program:  # noqa: S607 - found wherever it is
        program.terminate()
        return program.wait(30)


@app.job("cpu.without_job", executor="process")
def without_job(text: str) -> list[object]:
    return [text, os.getpid()]


@app.job("cpu.key", executor="process")
def key(job: Job[Any]) -> str:
    return job.idempotency_key
