"""procrastinate: 20 jobs at a time in each worker, LISTEN on."""

from __future__ import annotations

import procrastinate
from adapter import asynccontextmanager, main, started

CONCURRENCY = 20


def make(url: str) -> tuple[procrastinate.App, procrastinate.tasks.Task]:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=CONCURRENCY, max_size=CONCURRENCY + 4)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="default")
    async def noop(at: float, data: str) -> None:  # noqa: ARG001
        started(at)

    return app, noop


async def prepare(url: str) -> None:
    app, _ = make(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@asynccontextmanager
async def produce(url: str):
    app, noop = make(url)
    async with app.open_async():
        yield (lambda job: noop.defer_async(**job)), (lambda jobs: noop.batch_defer_async(*jobs))


async def work(url: str) -> None:
    app, _ = make(url)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


main(prepare=prepare, produce=produce, work=work)
