"""An application to enqueue with, and a look at what is in the database, on a connection of its own."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast import Holdfast, Job

app = Holdfast()


@app.job("receipt.send", queue="mail")
async def send_receipt(job: Job[None], invoice_id: int) -> str:
    return str(invoice_id)


INSERT = "INSERT INTO invoice (id) VALUES (1)"


def create_invoices(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("CREATE TABLE invoice (id int)")


def seen(database: str) -> tuple[list[Any], int]:
    """Return the invoice ids of the committed jobs, and the number of committed invoices."""
    with psycopg.connect(database) as conn:
        jobs = conn.execute("SELECT payload ->> 'invoice_id' FROM holdfast.job ORDER BY id").fetchall()
        invoices = conn.execute("SELECT count(*) FROM invoice").fetchone()
    assert invoices is not None
    return [int(row[0]) for row in jobs], invoices[0]
