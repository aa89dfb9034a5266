"""Applications whose handlers do nothing, for workers that are started by the real command."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import asynccontextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job
from labs.bench.load import KIND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._relay.message import Message, Publish, Receipt

app = Holdfast()
many = Holdfast()
"""A hundred kinds in ten queues."""
felt = Holdfast()
"""Jobs that do nothing, and two that write down how long ago they were sent."""
relaying = Holdfast()
"""One subscription that discards every event."""


@app.job(KIND)
async def noop(job: Job[None], data: str) -> None:
    pass


begun: deque[float] = deque(maxlen=20_000)
"""When the last of the jobs that do nothing began."""


@felt.job(KIND)
async def felt_noop(job: Job[None], data: str) -> None:  # noqa: ARG001 - a handler has them
    begun.append(time.monotonic())


@felt.job("bench.urgent")
async def urgent(job: Job[None], sent: float, file: str) -> None:  # noqa: ARG001 - a handler has it
    """Write down how long ago it was sent, and how many others began since."""
    passed = time.monotonic() - sent
    others = sum(1 for _ in takewhile(lambda at: at > sent, reversed(begun)))
    with Path(file).open("a") as lines:  # noqa: ASYNC230 - a line takes some microseconds
        lines.write(f"{passed} {others}\n")


@felt.job("bench.stamp")
async def stamp(job: Job[None], sent: float, file: str) -> None:  # noqa: ARG001 - a handler has it
    passed = time.monotonic() - sent
    with Path(file).open("a") as lines:  # noqa: ASYNC230 - a line takes some microseconds
        lines.write(f"{passed}\n")


async def nothing(job: Job[None]) -> None:
    pass


of_many = [many.job(f"{KIND}{number}", queue=f"queue{number % 10}")(nothing) for number in range(100)]


class Discard:
    """A sink that confirms every message at once."""

    name = "discard"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        async def publish(_message: Message) -> Receipt | None:
            return None

        yield publish


relaying.relay("discard", relaying.event("bench.event", dict), to=Discard())
divided = Holdfast()
"""For several databases: its handler takes a while, and writes down that it has ended."""

DIVIDED = "bench.divided"
DIVIDED_SECONDS = 0.05


@divided.job(DIVIDED)
async def take_a_while(job: Job[None], key: str) -> None:
    await asyncio.sleep(DIVIDED_SECONDS)
    with (Path(os.environ["BENCH_ENDED"]) / str(os.getpid())).open("a") as ended:
        ended.write(f"{job.database} {job.id} {key}\n")
