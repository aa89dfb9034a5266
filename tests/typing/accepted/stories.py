"""Steps, sleeps and messages: result types flow, also of lambdas, partials, classes and generic functions."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, assert_type

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow  # noqa: TC002 - as an application writes it
from pydantic import BaseModel

from holdfast import Handle, Holdfast, Job, Step, Unique

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

app = Holdfast()
T = TypeVar("T")


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


async def book_in(session: AsyncSession, order: int) -> int:
    await session.flush()
    return order


def book_now(conn: Connection[TupleRow], order: int) -> int:
    conn.execute("SELECT 1")
    return order


def first(given: list[T]) -> T:
    return given[0]


async def named(name: str, fn: int) -> str:
    return f"{name} {fn}"


def takes_anything(given: object) -> None: ...


bank = Bank()
approval = app.message("approval", Approval)


@app.job("label")
async def label(box: int) -> Charge:
    return Charge(str(box))


@app.job("weigh")
def weigh(box: int) -> int:
    return box


@app.job("order.fulfil", unique=Unique.by("order"))
async def fulfil(job: Job[None], order: int, conn: str) -> str:
    charge = await job.step("charge", bank.charge, order, amount=3)
    assert_type(charge, Charge)
    fee = await job.step(Step("fee", key=order, attempts=3, timeout=timedelta(seconds=5)), bank.fee, order)
    assert_type(fee, int)
    async with await AsyncConnection.connect(conn) as own:
        booked = await job.step_on(own, "book", book, order)
        assert_type(booked, list[Charge])
    await job.sleep("cool off", timedelta(days=3))
    await job.sleep("until", datetime.now(UTC))
    answer = await job.receive(approval, timeout=timedelta(days=7))
    assert_type(answer, Approval | None)
    sure = await job.receive(approval, key="again")
    assert_type(sure, Approval)
    takes_anything(await job.receive(approval, key=3))
    assert_type(await job.gather("labels", *[label.new(n) for n in range(3)]), list[Charge])
    mixed: list[Charge | int] = await job.gather(Step("mixed", key=1), label.new(1), weigh.new(1))
    takes_anything(mixed)
    assert_type(await job.step("lambda", lambda: bank.fee(order)), int)
    assert_type(await job.step("async lambda", lambda: bank.charge(order)), Charge)
    assert_type(await job.step("partial", functools.partial(bank.charge, order), amount=2), Charge)
    assert_type(await job.step("generic", first, [1, 2]), int)
    assert_type(await job.step("class", Charge, "x"), Charge)
    assert_type(await job.step("own names", named, name="x", fn=1), str)
    return job.step_key("charge", 7)


async def on_a_session(job: Job[None], session: AsyncSession) -> None:
    assert_type(await job.step_on(session, "book", book_in, 7), int)


@app.job("order.sync")
def fulfil_now(job: Job[None], order: int, conn: str) -> int:
    fee = job.sync.step("fee", bank.fee, order)
    assert_type(fee, int)
    with Connection.connect(conn) as own:
        assert_type(job.sync.step_on(own, "book", book_now, order), int)
    job.sync.sleep("cool off", 60)
    assert_type(job.sync.gather("weights", weigh.new(1)), list[int])
    assert_type(job.sync.receive(approval, timeout=60), Approval | None)
    assert_type(job.sync.receive(approval), Approval)
    return fee


async def send(conn: AsyncConnection[TupleRow], story: Handle[str]) -> None:
    sent = await app.send(conn, story, approval, Approval(by="ada"), key="c-1")
    assert_type(sent, Literal["sent", "duplicate", "already_ended", "not_found"])
    await app.send(conn, 7, approval, Approval(by="ada"))
    await app.send(conn, fulfil.new(7, "x"), approval, Approval(by="ada"))
