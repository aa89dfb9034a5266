"""`run_schedule(name)` runs the job of a schedule once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Every, Holdfast, HoldfastError, Tick
from holdfast.testing import Testing

if TYPE_CHECKING:
    Conn = psycopg.AsyncConnection[Any]


def nightly(app: Holdfast) -> None:
    @app.job("report")
    async def report(day: str = "today") -> str:
        return day

    app.schedule("nightly", report.new("yesterday"), every=Every(86_400))

    @app.runner("tidy", every=Every(60))
    async def tidy(tick: Tick) -> None: ...


async def test_a_schedule_is_run_by_its_name(app: Holdfast, kit: Testing) -> None:
    nightly(app)
    for _ in range(2):
        ran = await kit.run_schedule("nightly")
        assert (ran.kind, ran.result) == ("report", "yesterday")


def test_the_same_on_a_sync_connection(app: Holdfast, database: str) -> None:
    nightly(app)
    with psycopg.connect(database) as conn:
        assert Testing(app, conn).sync.run_schedule("nightly").result == "yesterday"
        conn.rollback()


async def test_another_name_is_refused_with_those_there_are(app: Holdfast, kit: Testing) -> None:
    nightly(app)
    with pytest.raises(HoldfastError, match="daily: there is no schedule of this name: the schedules are nightly"):
        await kit.run_schedule("daily")
    with pytest.raises(HoldfastError, match="tidy is a runner, not a schedule of a job: call its function"):
        await kit.run_schedule("tidy")
