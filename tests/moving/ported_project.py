"""The Celery project of `peers/celery_project.py`, ported with the table of the guide."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast import Blocker, Continue, Group, Holdfast, Job, Limit, Retry

app = Holdfast()


class DeclinedError(Exception):
    pass


@app.job("add")
async def add(x: int, y: int) -> int:
    return x + y


@app.job("square")
async def square(n: int) -> int:
    return n * n


def numbers_of(blockers: tuple[Blocker, ...]) -> list[int]:
    return [square.result(blocker) for blocker in blockers]


@app.job("total")
async def total(job: Job[None]) -> int:
    return sum(numbers_of(job.blockers))


@app.job("double")
async def double(n: int) -> int:
    return 2 * n


@app.job("greet")
async def greet(name: str, *, polite: bool = False) -> str:
    return f"Dear {name}" if polite else f"Hi {name}"


@app.job("silent")
async def silent() -> None:
    """Return nothing, so that nothing is stored."""


@app.job("flaky", retry=Retry(max_attempts=4, base=0, jitter=0, on=(OSError,)))
async def flaky(job: Job[None]) -> int:
    if job.attempt - 1 < 2:
        raise ConnectionError("down")
    return job.attempt - 1


@app.job("always_down", retry=Retry(max_attempts=3, base=0, jitter=0, on=(OSError,)))
async def always_down() -> None:
    raise ConnectionError("down")


@app.job("gone", retry=Retry(max_attempts=4, base=0, on=(OSError,), never=(FileNotFoundError,)))
async def gone(job: Job[None]) -> None:
    raise FileNotFoundError(f"retries {job.attempt - 1}")


@app.job("wrong", retry=Retry(base=0, on=(OSError,)))
async def wrong() -> None:
    raise ValueError("not retried")


@app.job("again", retry=Retry(max_attempts=3))
async def again(job: Job[None]) -> None:
    raise Retry.again(0) from DeclinedError(f"attempt {job.attempt}")


@app.job("soon", retry=Retry(max_attempts=6))
async def soon(job: Job[None]) -> str | Retry.again:
    return Retry.again(1) if job.attempt == 1 else "at the second attempt"


@app.job("report")
async def report(name: str) -> str:
    return f"reported {name}"


@app.job("split")
async def split(count: int) -> Continue[int]:
    return Continue(Group([square.new(n) for n in range(count)], then=spread.new()))


@app.job("spread")
async def spread(job: Job[None]) -> Continue[int]:
    return Continue(double.new(sum(numbers_of(job.blockers))))


@app.job("tidy", max_runtime=3)
async def tidy(job: Job[None]) -> str:
    try:
        async with asyncio.timeout(job.signal.seconds_left - 2):
            await asyncio.sleep(30)
    except TimeoutError:
        return "stopped in time"
    return "too late"


@app.job("hang", executor="process", queue="processes", max_runtime=1, retry=Retry(max_attempts=1))
def hang() -> None:
    time.sleep(30)


@app.job("limited", limits=[Limit(rate="5/s")])
async def limited(n: int) -> int:
    return n


@app.job("measured")
async def measured(job: Job[None]) -> str:
    job.progress(0.5)
    return "measured"


@app.job("headers")
async def headers(job: Job[None]) -> str:
    return job.headers["tenant"]


# Chains, and what was sent at once.


@app.job("add and double")
async def add_and_double(x: int, y: int) -> Continue[int]:
    return Continue(double_twice.new(x + y))


@app.job("double twice")
async def double_twice(n: int) -> Continue[int]:
    return Continue(double.new(2 * n))


@app.job("results")
async def results(job: Job[None], chunk: int = 1) -> list[Any]:
    found = [add.result(blocker) for blocker in job.blockers]
    return found if chunk == 1 else [found[n : n + chunk] for n in range(0, len(found), chunk)]
