"""The customers of the demo: each order is a row of the shop, a job and an event, written in one transaction."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import psycopg

from holdfast._demo.shop import OrderPlaced, app, charge, order_placed

NAMES = ("ada", "alan", "barbara", "dennis", "edsger", "frances", "grace", "ken", "leslie", "margaret", "niklaus")
TABLE = "CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, customer text NOT NULL, amount int NOT NULL)"
# Orders that are placed at once, so that there is something to see.
FIRST_ORDERS = 50
# Every minute there is a rush of so many seconds.
RUSH_SECONDS = 8


async def buy(url: str) -> None:
    """Place orders until cancelled: some each second, and many in a rush."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(TABLE)
        for order in count(1):
            async with conn.transaction():
                await place(conn, order)
            if order <= FIRST_ORDERS:
                continue
            rush = asyncio.get_running_loop().time() % 60 < RUSH_SECONDS
            await asyncio.sleep(random.expovariate(12 if rush else 3))


async def place(conn: psycopg.AsyncConnection[tuple[object, ...]], order: int) -> None:
    """Write the order, the job that charges it and the event that tells others. All are committed, or none."""
    customer, amount, items = random.choice(NAMES), random.randint(5, 400), random.randint(1, 4)
    await conn.execute("INSERT INTO orders VALUES (%s, %s, %s)", [order, customer, amount])
    await app.enqueue(conn, charge.new(order, items, amount))
    await app.publish(conn, order_placed.new(OrderPlaced(order, customer, amount), key=customer))
