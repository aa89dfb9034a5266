"""The kit for users' tests."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

from django.db import connection

from holdfast import Holdfast, Job
from holdfast.testing import Drained, Enqueued, Ran, Testing

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

app = Holdfast()


@app.job("charge")
async def charge(job: Job[None], amount: int) -> str:
    return str(amount)


async def awaited(holdfast: Testing) -> None:
    await holdfast.assert_enqueued(charge.new(7))
    await holdfast.assert_enqueued(charge.new(7).options(priority=0), times=2)
    assert_type(await holdfast.enqueued(charge), list[Enqueued])
    drained = await holdfast.drain(limit=10, timeout=timedelta(seconds=1), raise_errors=False)
    assert_type(drained, Drained)
    assert_type((drained.completed, drained.failed), tuple[list[int], list[int]])
    assert_type(list(drained), list[Ran])
    assert_type(await holdfast.run_job(charge.new(7)), Ran)
    await holdfast.travel(timedelta(days=1))
    await holdfast.travel(days=3, hours=1.5)
    assert_type(await holdfast.run_schedule("nightly"), Ran)
    assert_type(await holdfast.drain(events=True), Drained)


def at_once(holdfast: Testing) -> None:
    holdfast.sync.assert_enqueued(charge.new(7), times=0)
    assert_type(holdfast.sync.enqueued(charge), list[Enqueued])
    assert_type(holdfast.sync.drain(), Drained)
    assert_type(holdfast.sync.run_job(charge.new(7), raise_errors=False), Ran)
    holdfast.sync.travel(timedelta(days=1))
    holdfast.sync.travel(60, minutes=1)
    assert_type(holdfast.sync.run_schedule("nightly", timeout=5), Ran)
    assert_type(holdfast.sync.drain(events=True), Drained)


def async_connections(
    one: psycopg.AsyncConnection[Any], two: asyncpg.Connection[Any], three: AsyncSession, four: AsyncConnection
) -> list[Testing]:
    return [Testing(app, one), Testing(app, two), Testing(app, three), Testing(app, four, state=three)]


def sync_connections(one: psycopg.Connection[Any], two: Session, three: Connection) -> list[Testing]:
    return [Testing(app, one), Testing(app, two), Testing(app, three, state=two), Testing(app, connection)]
