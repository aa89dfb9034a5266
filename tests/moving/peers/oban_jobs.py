"""Runs with Oban for Python: makes its schema, and inserts jobs that stay there."""

import asyncio
import sys

from oban import Job, Oban
from oban.schema import install


async def main() -> None:
    async with await Oban.create_pool(sys.argv[1]) as pool:
        await install(pool)
        async with Oban(pool=pool) as oban:
            for job in (
                Job(worker="MyApp.Workers.Ship", args={"order_id": 1}),
                Job(worker="MyApp.Workers.Ship", args={"order_id": 2}),
                Job(worker="MyApp.Workers.Ship", args={"order_id": 3}, scheduled_in=86_400),
                Job(worker="MyApp.Workers.Ship", args={"order_id": "four"}),
                Job(worker="MyApp.Workers.Other", args={}),
            ):
                await oban.enqueue(job)


asyncio.run(main())
