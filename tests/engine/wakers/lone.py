"""A process with one worker that says when it listens: `python -m tests.engine.wakers.lone DATABASE KIND BROKER`."""

from __future__ import annotations

import asyncio
import sys

from holdfast.wake import NatsWake, RedisWake
from tests.engine.wakers.fleet import Fleet, listening
from tests.kit.waiting import until


async def main(database: str, kind: str, broker: str) -> None:
    carrier = {"redis": RedisWake, "nats": NatsWake}[kind](broker)
    async with Fleet(database, carrier) as app:
        worker = await app.start("lone", "other")
        await until(lambda: listening(worker))
        print("listening", flush=True)  # noqa: T201 - the parent waits for it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
