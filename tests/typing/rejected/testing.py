"""Every marked line is an error to both checkers, and no other line is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
from sqlalchemy import Engine

from holdfast import Holdfast, Job
from holdfast.testing import Drained, Testing

app = Holdfast()


@app.job("charge")
async def charge(job: Job[None], amount: int) -> str:
    return str(amount)


async def forgotten(holdfast: Testing) -> None:
    holdfast.assert_enqueued(charge.new(7))  # rejected: forgotten await
    holdfast.drain()  # rejected: forgotten await
    holdfast.run_job(charge.new(7))  # rejected: forgotten await
    holdfast.travel(timedelta(days=1))  # rejected: forgotten await
    drained: Drained = holdfast.drain()  # rejected: forgotten await
    print(drained, len(holdfast.enqueued(charge)))  # rejected: forgotten await


async def awaited(holdfast: Testing) -> None:
    await holdfast.sync.drain()  # rejected
    await holdfast.sync.assert_enqueued(charge.new(7))  # rejected


def arguments(holdfast: Testing, conn: psycopg.Connection[Any], engine: Engine) -> None:
    holdfast.sync.assert_enqueued(charge)  # rejected: a kind is not a job
    holdfast.sync.assert_enqueued(charge.new("seven"))  # rejected: not the handler's arguments
    holdfast.sync.enqueued("charge")  # rejected: a name is not a kind
    holdfast.sync.travel("60")  # rejected: neither seconds nor a timedelta
    holdfast.sync.travel(years=1)  # rejected: a year has no fixed length
    holdfast.sync.run_schedule(7)  # rejected: not a name
    holdfast.sync.run_job(7)  # rejected: an id is not a job
    holdfast.sync.drain(1000)  # rejected: by name
    Testing(conn, app)  # rejected: the other way round
    Testing(app, engine)  # rejected: no connection
    Testing(app, "postgresql://")  # rejected
