"""Staged processing: read, do the slow work with no transaction open, then write and complete in one.

    HOLDFAST_DATABASE_URL=postgresql://localhost/shop python examples/staged.py

makes a table, an invoice and a job, runs the job, and prints the invoice's receipt.
"""

from __future__ import annotations

import asyncio
import os

import psycopg

from holdfast import Holdfast, Job

url = os.environ["HOLDFAST_DATABASE_URL"]
app = Holdfast(url)


async def call_the_bank(amount: int, key: str) -> str:
    """Stand in for a third-party server that does the same thing only once for the same key."""
    await asyncio.sleep(0.1)
    return f"{amount} charged under {key}"


@app.job("invoice.charge")
async def charge(job: Job[None], invoice_id: int) -> str:
    # Prepare: read, and let go of the connection.
    async with await psycopg.AsyncConnection.connect(url) as conn:
        cursor = await conn.execute("SELECT amount FROM invoice WHERE id = %s", [invoice_id])
        [[amount]] = await cursor.fetchall()

    # Slow work. No transaction is open; the lease is renewed by itself.
    receipt = await call_the_bank(amount, job.idempotency_key)

    # Complete: both rows and the completion, or none of them.
    async with await psycopg.AsyncConnection.connect(url) as conn:
        await conn.execute("UPDATE invoice SET receipt = %s WHERE id = %s", [receipt, invoice_id])
        return await job.complete(conn, receipt)


async def main() -> None:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        await conn.execute("CREATE TABLE invoice (id bigint PRIMARY KEY, amount integer, receipt text)")
        await conn.execute("INSERT INTO invoice VALUES (7, 120)")
        handle = await app.enqueue(conn, charge.new(7))
    async with app.worker():
        print(await app.wait(handle))


if __name__ == "__main__":
    asyncio.run(main())
