"""A Celery project of twenty tasks. As a program, it runs them with a worker on Redis, and prints how each ended.

Run with the packages of Celery, and with the address of a Redis in CELERY_PROJECT_URL. Its database there is emptied.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord, group
from celery.exceptions import SoftTimeLimitExceeded
from celery.result import AsyncResult, allow_join_result

REDIS = os.environ["CELERY_PROJECT_URL"]
app = Celery("celery_project", broker=REDIS, backend=REDIS)
app.conf.update(task_track_started=True, result_extended=True, broker_connection_retry_on_startup=True)
app.conf.update(worker_prefetch_multiplier=1, task_acks_late=True, worker_hijack_root_logger=False)


class DeclinedError(Exception):
    pass


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def square(n: int) -> int:
    return n * n


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task
def greet(name: str, *, polite: bool = False) -> str:
    return f"Dear {name}" if polite else f"Hi {name}"


@app.task(ignore_result=True)
def silent() -> str:
    return "nobody reads it"


@app.task(bind=True, autoretry_for=(OSError,), max_retries=3, default_retry_delay=0)
def flaky(self: Any) -> int:
    if self.request.retries < 2:
        raise ConnectionError("down")
    return int(self.request.retries)


@app.task(autoretry_for=(OSError,), max_retries=2, default_retry_delay=0)
def always_down() -> None:
    raise ConnectionError("down")


@app.task(bind=True, autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,), default_retry_delay=0)
def gone(self: Any) -> None:
    raise FileNotFoundError(f"retries {self.request.retries}")


@app.task(autoretry_for=(OSError,), default_retry_delay=0)
def wrong() -> None:
    raise ValueError("not retried")


@app.task(bind=True, max_retries=2)
def again(self: Any) -> None:
    raise self.retry(exc=DeclinedError(f"attempt {self.request.retries + 1}"), countdown=0)


@app.task(bind=True, max_retries=5)
def soon(self: Any) -> str:
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    return "at the second attempt"


@app.task
def report(task_id: str) -> str:
    return f"reported {task_id}"


@app.task
def split(count: int) -> list[int]:
    return list(range(count))


@app.task(bind=True)
def spread(self: Any, numbers: list[int]) -> None:
    """A group after a step, whose size the step decides."""
    raise self.replace(chord(group(square.s(n) for n in numbers), total.s()))


@app.task(soft_time_limit=1)
def tidy() -> str:
    try:
        time.sleep(30)
    except SoftTimeLimitExceeded:
        return "stopped in time"
    return "too late"


@app.task(time_limit=1)
def hang() -> None:
    time.sleep(30)


@app.task(bind=True)
def headers(self: Any) -> str:
    return str(self.request.headers["tenant"])


@app.task(rate_limit="5/s")
def limited(n: int) -> int:
    return n


@app.task(bind=True)
def measured(self: Any) -> str:
    self.update_state(state="PROGRESS", meta={"done": 0.5})
    return "measured"


def ended(result: AsyncResult[Any]) -> list[Any]:
    """Return how a task ended: its value, or the name of its error and the text."""
    with allow_join_result():
        value = result.get(timeout=60, propagate=False)
    return ["failed", type(value).__name__, str(value)] if isinstance(value, BaseException) else ["completed", value]


def main() -> None:
    calls: dict[str, AsyncResult[Any]] = {
        "add": add.delay(2, 3),
        "greet": greet.apply_async(("Ada",), {"polite": True}, priority=1),
        "flaky": flaky.delay(),
        "always_down": always_down.delay(),
        "gone": gone.delay(),
        "wrong": wrong.delay(),
        "again": again.delay(),
        "soon": soon.delay(),
        "later": double.apply_async((4,), countdown=1),
        "chain": chain(add.s(1, 2), double.s(), double.s()).apply_async(),
        "chord": chord([square.s(n) for n in range(5)], total.s()).apply_async(),
        "chunks": group(add.chunks([(n, n) for n in range(6)], 2).group()).apply_async(),
        "starmap": add.starmap([(1, 2), (3, 4)]).apply_async(),
        "group in a chain": chain(split.s(4), spread.s(), double.s()).apply_async(),
        "tidy": tidy.delay(),
        "hang": hang.delay(),
        "headers": headers.apply_async(headers={"tenant": "a"}),
        "expired": double.apply_async((1,), countdown=2, expires=1),
        "limited": limited.delay(5),
        "measured": measured.delay(),
        "silent": silent.delay(),
        "wrong, reported": wrong.apply_async(task_id="wrong", link_error=report.s().set(task_id="report")),
        "report": AsyncResult("report", app=app),
    }
    found = {name: ended(result) for name, result in calls.items()}
    print(json.dumps(found))  # noqa: T201 - the answer


if __name__ == "__main__":
    command = [sys.executable, "-m", "celery", "-A", "celery_project", "worker", "-c", "4", "--loglevel", "ERROR"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=sys.stderr) as worker:  # noqa: S603 - Celery's
        try:
            app.control.purge()
            main()
        finally:
            worker.terminate()
