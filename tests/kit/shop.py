"""An application with something of everything: what the pages show, and what can be acted on."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
from pydantic import BaseModel

from holdfast import Continue, Every, Holdfast, Job, Retry, Settings, Tick
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._model.event import Event  # noqa: TC001 - its annotation is read


class Paid(BaseModel):
    invoice: int


class Shop(NamedTuple):
    app: Holdfast
    completed: int
    dead: int
    chain: int
    waiting: int


def make_app(url: str) -> Holdfast:
    app = Holdfast(url)

    app.limit("mail-server", concurrency=100)

    @app.job("mail.send", queue="mail")
    async def send(job: Job[Any], to: str, password: str = "") -> str:
        return "sent"

    @app.job("mail.break", queue="mail", retry=Retry(max_attempts=1))
    async def broken(job: Job[Any]) -> None:
        raise ValueError("it broke")

    @app.job("order.place")
    async def place(job: Job[Any]) -> Continue[str]:
        return Continue(send.new("next@example.org"))

    @app.runner("carts.sweep", every=Every(timedelta(hours=1)), at_start=False)
    async def sweep_carts(tick: Tick) -> dict[str, int]:
        return {"deleted": 1}

    paid = app.event("invoice.paid", Paid)

    @app.on(paid, name="ledger")
    async def book(job: Job[Any], event: Event[Paid]) -> None: ...

    return app


async def enqueue(app: Holdfast, kind: str, *args: Any, **options: Any) -> int:
    async with await psycopg.AsyncConnection.connect(app.url) as conn, conn.transaction():
        job: Any = app.kinds[kind].new(*args)
        return (await app.enqueue(conn, job.options(**options))).id


async def tick(app: Holdfast) -> None:
    result = await run_tick(application_of(app, Settings.load(os.environ)))
    assert result.exit_code == 0, result


def fill(url: str) -> Shop:
    """Run a few jobs, and leave some to wait."""

    async def filling() -> Shop:
        app = make_app(url)
        completed = await enqueue(app, "mail.send", "done@example.org", "hush")
        dead = await enqueue(app, "mail.break")
        chain = await enqueue(app, "order.place")
        await tick(app)
        await tick(app)
        waiting = [
            await enqueue(app, "mail.send", f"{number}@example.org", "hush", delay=timedelta(days=1))
            for number in range(3)
        ]
        return Shop(app, completed, dead, chain, waiting[0])

    return asyncio.run(filling())
