"""The application of compose.yaml. Put yours in its place.

`python shop.py` enqueues a job, waits for its result, and prints it.
"""

from __future__ import annotations

import asyncio
import os

from psycopg import AsyncConnection

from holdfast import Holdfast, Job

app = Holdfast()  # the address comes from HOLDFAST_DATABASE_URL


@app.job("receipt.send")
async def send_receipt(job: Job[None], order_id: int) -> str:
    return f"receipt for order {order_id} sent, attempt {job.attempt}"


async def main() -> None:
    async with await AsyncConnection.connect(os.environ["HOLDFAST_DATABASE_URL"]) as conn:
        receipt = await app.enqueue(conn, send_receipt.new(7))
    print(await app.wait(receipt))


if __name__ == "__main__":
    asyncio.run(main())
