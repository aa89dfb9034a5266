"""Runs with pgqueuer: makes its schema, and enqueues jobs that stay there."""

import asyncio
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.types import QueueExecutionMode


async def main() -> None:
    connection = await asyncpg.connect(sys.argv[1])
    driver = AsyncpgDriver(connection)
    if sys.argv[2] == "enqueue":
        queries = Queries(driver)
        await queries.install()
        await queries.enqueue("ship", b'{"order_id": 1}')
        await queries.enqueue("ship", b'{"order_id": 2}')
        await queries.enqueue("ship", b'{"order_id": 3}', execute_after=timedelta(days=1))
        await queries.enqueue("ship", b"\x00\xff")
        await queries.enqueue("other", None)
    else:
        # A worker of pgqueuer finds only what was not imported.
        queuer = PgQueuer(driver)

        @queuer.entrypoint("ship")
        async def ship(job) -> None:
            sys.stdout.write(f"ran {job.payload}\n")

        await queuer.run(mode=QueueExecutionMode.drain)


asyncio.run(main())
