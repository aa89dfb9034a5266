"""A shop on Starlette and psycopg. An order and the job that mails its receipt are committed together.

createdb shop && psql -d shop -f orders.sql && export DATABASE_URL=postgresql://localhost/shop && holdfast migrate
HOLDFAST_WORKER_ENABLED=true uvicorn shop:web       (or, without it, and beside it: holdfast worker shop:app)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from psycopg import AsyncConnection
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from holdfast import Holdfast, Job
from holdfast.contrib.starlette import lifespan

if TYPE_CHECKING:
    from starlette.requests import Request

URL = os.environ["DATABASE_URL"]

app = Holdfast(URL)


@app.job("receipt.send")
async def send_receipt(job: Job[None], order_id: int) -> None:
    async with await AsyncConnection.connect(URL) as conn:
        receipt = f"sent, attempt {job.attempt}"
        await conn.execute("UPDATE orders SET receipt = %s WHERE id = %s", [receipt, order_id])


async def place_order(request: Request) -> JSONResponse:
    form = await request.json()
    async with await AsyncConnection.connect(URL) as conn:
        cursor = await conn.execute("INSERT INTO orders (address) VALUES (%s) RETURNING id", [form["address"]])
        [order_id] = await cursor.fetchone() or [0]
        await request.state.holdfast.enqueue(conn, send_receipt.new(order_id))
        if form.get("card") == "declined":
            raise HTTPException(409)  # rolls back: there is no order, and no job
    return JSONResponse({"id": order_id}, status_code=201)


async def show_order(request: Request) -> JSONResponse:
    async with await AsyncConnection.connect(URL) as conn:
        cursor = await conn.execute("SELECT receipt FROM orders WHERE id = %s", [request.path_params["order_id"]])
        row = await cursor.fetchone()
    if row is None:
        raise HTTPException(404)
    return JSONResponse({"receipt": row[0]})


web = Starlette(
    routes=[Route("/orders", place_order, methods=["POST"]), Route("/orders/{order_id:int}", show_order)],
    lifespan=lifespan(app),
)
