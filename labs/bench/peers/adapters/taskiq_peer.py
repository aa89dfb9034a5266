"""taskiq on Redis streams, which acknowledge: 100 jobs at a time."""

from __future__ import annotations

from adapter import asynccontextmanager, main, started
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


def make(url: str):
    # From the first message on, not from when the first worker came.
    broker = RedisStreamBroker(url=url, consumer_id="0")

    @broker.task(task_name="noop")
    async def noop(at: float, data: str) -> None:  # noqa: ARG001
        started(at)

    return broker, noop


async def prepare(url: str) -> None:
    broker, _ = make(url)
    await broker.startup()
    await broker.shutdown()


@asynccontextmanager
async def produce(url: str):
    broker, noop = make(url)
    await broker.startup()

    async def many(jobs: list[dict]) -> None:
        for job in jobs:
            await noop.kiq(**job)

    yield (lambda job: noop.kiq(**job)), many
    await broker.shutdown()


async def work(url: str) -> None:
    broker, _ = make(url)
    await run_receiver_task(broker, max_async_tasks=100, run_startup=True, validate_params=False)


main(prepare=prepare, produce=produce, work=work)
