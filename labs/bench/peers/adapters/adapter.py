"""The code that all Python adapters share. It runs under the peer's own interpreter: standard library alone.

    prepare URL               make the tables, queues, …
    one URL N                 enqueue N jobs one by one, each in a transaction of its own
    many URL N                enqueue N jobs with the peer's way for many, 1,000 at a time
    pace URL                  enqueue one job for every line that comes in
    rate URL R SECONDS        enqueue R jobs a second, one by one, whatever happens to them
    work URL                  say that it is ready, wait for a line, then work until it is killed

Answers are lines of JSON. Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

CHUNK = 1_000
# How many jobs may start in a second in all workers together; none: no limit. See limits.py.
RATE = int(os.environ.get("HOLDFAST_PEER_RATE", "0")) or None
REPORT_SECONDS = 0.02
DATA = "x" * 90

_starts: list[float] = []
_first: list[float] = []


def payload(at: float = 0.0) -> dict[str, object]:
    """Return the arguments of a job, some 120 bytes; `at` is when it was enqueued, if anybody wants to know."""
    return {"at": at, "data": DATA}


def started(at: float) -> None:
    """Take note that a handler runs: its first line. Any thread may call it."""
    if not _starts:
        _first.append(time.monotonic())
    _starts.append(time.monotonic() - at if at else 0.0)


def main(*, prepare, produce, work) -> None:
    """`produce(url)` is a context manager that yields one(payload) and many(payloads); all may be async or not."""
    verb, url, *rest = sys.argv[1:]
    if verb == "work":
        say(ready=True)
        sys.stdin.readline()
        threading.Thread(target=_report, daemon=True).start()
        threading.Thread(target=_end_with_the_harness, daemon=True).start()
        if inspect.iscoroutinefunction(work):
            asyncio.run(work(url))
        else:
            work(url)
    elif verb == "prepare":
        answer = prepare(url)
        if inspect.isawaitable(answer):
            asyncio.run(_wait(answer))
        say(prepared=True)
    else:
        asyncio.run(_produce(verb, produce(url), [int(number) for number in rest]))


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def _produce(verb, producer, numbers) -> None:
    async with AsyncExitStack() as stack:
        if isinstance(producer, contextmanager_type):
            one, many = stack.enter_context(producer)
        else:
            one, many = await stack.enter_async_context(producer)
        if verb == "one":
            await _one_by_one(one, *numbers)
        elif verb == "many":
            await _in_chunks(many, *numbers)
        elif verb == "pace":
            await _at_the_pace_of_lines(one)
        else:
            await _at_a_rate(one, *numbers)


async def _one_by_one(one, jobs: int) -> None:
    await _wait(one(payload()))
    begun = time.monotonic()
    for _ in range(jobs - 1):
        await _wait(one(payload()))
    say(jobs=jobs - 1, seconds=time.monotonic() - begun)


async def _in_chunks(many, jobs: int) -> None:
    chunks = [[payload()] * min(CHUNK, jobs - begun) for begun in range(0, jobs, CHUNK)]
    begun = time.monotonic()
    for chunk in chunks:
        await _wait(many(chunk))
    say(jobs=jobs, seconds=time.monotonic() - begun)


async def _at_the_pace_of_lines(one) -> None:
    say(ready=True)
    while await asyncio.to_thread(sys.stdin.readline):
        await _wait(one(payload(time.monotonic())))
        say(sent=True)


async def _at_a_rate(one, rate: int, seconds: int) -> None:
    """Each job has its moment; one that is sent late is late from that moment on."""
    begun = time.monotonic()
    for number in range(rate * seconds):
        at = begun + number / rate
        if (early := at - time.monotonic()) > 0:
            await asyncio.sleep(early)
        await _wait(one(payload(at)))
    say(jobs=rate * seconds, seconds=time.monotonic() - begun)


async def _wait(answer):
    return await answer if inspect.isawaitable(answer) else answer


def _report() -> None:
    reported = 0
    while True:
        time.sleep(REPORT_SECONDS)
        if (count := len(_starts)) > reported:
            late = [round(1000 * seconds, 3) for seconds in _starts[reported:count] if seconds]
            say(started=count, at=time.monotonic(), first=_first[0], late=late)
            reported = count


def _end_with_the_harness() -> None:
    sys.stdin.read()
    os._exit(0)


@contextmanager
def _a_context_manager():
    yield


contextmanager_type = type(_a_context_manager())

__all__ = ["RATE", "asynccontextmanager", "contextmanager", "main", "payload", "started"]
