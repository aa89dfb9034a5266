"""Wake-ups over a broker, to the chosen worker or to all: `python -m labs.bench.broker` prints decision 11's table."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast, Job
from holdfast._engine.link import Link
from holdfast._engine.wake.broker import Bridge
from holdfast.wake import NatsWake, RedisWake
from labs.bench.ground import ground

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg import Notify

    from holdfast._engine.worker import Worker

WAKE_UPS = 60
PAUSE = 0.25
"""Seconds between two jobs: long enough for all workers to sleep again."""
SETTLED = 6.0
"""Seconds until the workers have a bridge and sleep."""
IDLE = 12.0
BROKERS = {"Redis": (RedisWake, "redis://127.0.0.1:6379"), "NATS": (NatsWake, "nats://127.0.0.1:4222")}

seen: Counter[str] = Counter()


async def to_all(self: Any, notification: Notify) -> None:
    """Forward as a plain broadcast does."""
    await self._session.publish(self._channels.everyone, f"note {notification.payload}")


def counting(kind: type) -> type:
    """Count the messages of a carrier."""

    class Counting(kind):  # type: ignore[misc]
        @asynccontextmanager
        async def open(self, on_message: Any) -> AsyncIterator[Any]:
            def received(channel: str, data: bytes) -> None:
                seen["received"] += 1
                on_message(channel, data)

            async with super().open(received) as session:
                publish = session.publish

                async def counted(channel: str, text: str) -> None:
                    seen["published"] += 1
                    await publish(channel, text)

                session.publish = counted
                yield session

    return Counting


def claimed(fleet: list[Worker]) -> int:
    servings = [worker.pipelines[0].serving for worker in fleet]
    return sum(serving.claimer.claims for serving in servings if serving is not None)


async def measure(url: str, broker: str, workers: int) -> list[str]:
    kind, address = BROKERS[broker]
    app = Holdfast(url, wake=counting(kind)(address, name="bench"))
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.job("act")
    async def act(_: Job[None]) -> None:
        started.put_nowait(time.monotonic())

    async with AsyncExitStack() as stack:
        conn = await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
        fleet = [await stack.enter_async_context(app.worker(id=f"w{n}", queues={"default": 2})) for n in range(workers)]
        await asyncio.sleep(SETTLED)
        assert all(worker.pipelines[0].session.listening.is_set() for worker in fleet)
        seen.clear()
        await asyncio.sleep(IDLE)
        idle, asked = seen["published"] + seen["received"], seen["asked"]
        times = []
        seen.clear()
        begun, claims = time.monotonic(), claimed(fleet)
        for _ in range(WAKE_UPS):
            await app.enqueue(conn, act.new())
            committed = time.monotonic()
            times.append(await started.get() - committed)
            await asyncio.sleep(PAUSE)
        passed = (time.monotonic() - begun) / IDLE
        claims = claimed(fleet) - claims
        messages = (seen["published"] + seen["received"] - idle * passed) / WAKE_UPS
        trips = (seen["asked"] - asked * passed) / WAKE_UPS
    tenths = quantiles(times, n=20)
    return [
        f"{idle / IDLE:.1f}",
        f"{messages:.1f}",
        f"{claims / WAKE_UPS:.1f}",
        f"{trips:.1f}",
        f"{1000 * median(times):.1f}",
        f"{1000 * tenths[-1]:.1f}",
    ]


def main() -> None:
    ask, forward = Link._ask, Bridge._forward

    async def asked(self: Link, *args: Any) -> Any:
        seen["asked"] += 1
        return await ask(self, *args)

    Link._ask = asked  # type: ignore[assignment,method-assign]
    print("| broker | workers | notes | idle messages/s | messages | claims | round trips | p50 ms | p95 ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    with ground() as base:
        for broker in BROKERS:
            for workers in (1, 4, 16):
                for way, function in (("chosen", forward), ("all", to_all)):
                    Bridge._forward = function  # type: ignore[method-assign]
                    with base.database() as url:
                        figures = asyncio.run(measure(url, broker, workers))
                    print(f"| {broker} | {workers} | {way} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
