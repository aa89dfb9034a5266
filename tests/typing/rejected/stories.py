"""Mistakes with steps, sleeps and messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from holdfast import Handle, Holdfast, Job, Step

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import TupleRow

app = Holdfast()


@dataclass
class Charge:
    id: str


class Approval(BaseModel):
    by: str


class Bank:
    async def charge(self, order: int, *, amount: int = 1) -> Charge:
        return Charge(f"{order} {amount}")

    def fee(self, order: int) -> int:
        return order


async def book(conn: AsyncConnection[TupleRow], order: int) -> list[Charge]:
    await conn.execute("SELECT 1")
    return [Charge(str(order))]


def book_now(conn: Connection[TupleRow], order: int) -> int:
    conn.execute("SELECT 1")
    return order


@app.job("label")
async def label(box: int) -> Charge:
    return Charge(str(box))


bank = Bank()
approval = app.message("approval", Approval)
topic = app.event("approved", Approval)


async def steps(job: Job[None], conn: AsyncConnection[TupleRow], sync: Connection[TupleRow]) -> None:
    await job.step("charge", bank.charge, "seven")  # rejected
    await job.step("charge", bank.charge)  # rejected
    await job.step("charge", bank.charge, 7, amounts=1)  # rejected
    await job.step("charge", bank.charge(7))  # rejected
    await job.step("charge", bank.charge, 7, timeout=5)  # rejected
    await job.step(bank.charge, 7)  # rejected
    count: int = await job.step("charge", bank.charge, 7)  # rejected
    print(count)
    job.step("charge", bank.charge, 7)  # rejected
    Step("x", 3)  # rejected
    await job.step_on(conn, "book", bank.charge, 7)  # rejected
    await job.step_on(sync, "book", book, 7)  # rejected
    await job.step_on(conn, "book", book_now, 7)  # rejected
    await job.sleep(5)  # rejected
    await job.gather(label.new(1))  # rejected
    await job.gather("labels", label)  # rejected
    await job.gather("labels", [label.new(1)])  # rejected
    await job.gather("labels", label.new(1), timeout=5)  # rejected
    charges: list[int] = await job.gather("labels", label.new(1))  # rejected
    print(charges)


async def messages(job: Job[None], conn: AsyncConnection[TupleRow], story: Handle[str]) -> None:
    await app.send(conn, story, approval, Charge("x"))  # rejected
    await app.send(story, approval, Approval(by="ada"))  # rejected
    await job.receive("approval")  # rejected
    await job.receive(topic)  # rejected
    print((await job.receive(approval, timeout=5)).by)  # rejected


def now(job: Job[None]) -> None:
    job.sync.step("fee", bank.fee, "seven")  # rejected
    charge: Charge = job.sync.step("fee", bank.fee, 7)  # rejected
    print(charge)
