"""A shop on FastAPI and SQLAlchemy. An order and the job that mails its receipt are committed together.

createdb shop && export DATABASE_URL=postgresql://localhost/shop && holdfast migrate
HOLDFAST_WORKER_ENABLED=true uvicorn shop:web       (or, without it, and beside it: holdfast worker shop:app)
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast, Job
from holdfast.contrib.fastapi import App, lifespan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

URL = os.environ["DATABASE_URL"]

app = Holdfast(URL)
engine = create_async_engine(make_url(URL).set(drivername="postgresql+psycopg"))
Session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    address: Mapped[str]
    receipt: Mapped[str | None] = mapped_column(default=None)


class Form(BaseModel):
    address: str
    card: str = ""


@app.job("receipt.send")
async def send_receipt(job: Job[None], order_id: int) -> None:
    async with Session.begin() as session:
        order = await session.get_one(Order, order_id)
        order.receipt = f"sent, attempt {job.attempt}"


@asynccontextmanager
async def tables_and_worker(web: FastAPI) -> AsyncGenerator[dict[str, Any], None]:
    """A lifespan of the site's own, around ours. Where nothing else is to be done: FastAPI(lifespan=lifespan(app))."""
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
    async with lifespan(app)(web) as state:
        yield state
    await engine.dispose()


web = FastAPI(lifespan=tables_and_worker)


@web.post("/orders", status_code=201)
async def place_order(form: Form, app: App) -> dict[str, int]:
    async with Session.begin() as session:
        order = Order(address=form.address)
        session.add(order)
        await session.flush()
        await app.enqueue(session, send_receipt.new(order.id))
        if form.card == "declined":
            raise HTTPException(409)  # rolls back: there is no order, and no job
    return {"id": order.id}


@web.get("/orders/{order_id}")
async def show_order(order_id: int) -> dict[str, str | None]:
    async with Session() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"receipt": order.receipt}
