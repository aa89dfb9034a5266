"""An application with something on every tab."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast import Event, Holdfast, Job
from holdfast._model.kind import Kind
from holdfast._model.retry import Retry
from holdfast._model.schedule import Every
from tests.kit.pace import PATIENT, ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._engine.runner import Counts, Tick


# Soon there, and never in a hurry: a machine that is busy with something else loses no lease.
PACE = PATIENT | {"heartbeat": ms(2_000), "reap_interval": ms(2_000), "idle_min": ms(50), "idle_max": ms(500)}


@dataclass(frozen=True)
class Paid:
    invoice: int


class Shop(NamedTuple):
    app: Holdfast
    conn: psycopg.AsyncConnection[Any]
    gate: asyncio.Event
    """Reports wait for it."""
    swept: asyncio.Event
    """The runner has run."""

    async def enqueue(self, kind: str, times: int = 1) -> list[int]:
        made = self.app.kinds[kind]
        assert isinstance(made, Kind)
        return [handle.id for handle in await self.app.enqueue_many(self.conn, [made.new() for _ in range(times)])]

    async def pay(self, invoice: int) -> None:
        await self.app.publish(self.conn, self.app.topics["invoice.paid"].new(Paid(invoice), key=str(invoice)))


@asynccontextmanager
async def shop(database: str) -> AsyncIterator[Shop]:
    """Yield the application with a live worker `w1`."""
    app = Holdfast(database)
    gate, swept = asyncio.Event(), asyncio.Event()
    paid = app.event("invoice.paid", Paid)

    @app.job("mail.send", queue="mail")
    async def send(job: Job[None]) -> str:
        return "sent"

    @app.job("invoice.render", retry=Retry(max_attempts=1))
    async def render(job: Job[None]) -> None:
        raise ValueError("no template")

    @app.job("report.build", queue="reports")
    async def build(job: Job[None]) -> None:
        await gate.wait()

    @app.on(paid, name="ledger", start="beginning")
    async def book(job: Job[None], event: Event[Paid]) -> None:
        """Nothing to do."""

    @app.runner("sweep", every=Every(timedelta(hours=1)), at_start=False)
    async def sweep(tick: Tick) -> Counts:
        swept.set()
        return {"swept": 3}

    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as conn,
        app.worker(id="w1", **PACE),
    ):
        yield Shop(app, conn, gate, swept)
