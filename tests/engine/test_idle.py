"""A worker that has nothing to do uses up hardly any transaction ids."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._engine.jobs import claim
from holdfast._engine.wake import sleep as sleep_record
from holdfast._store.statement import statements
from tests.kit.databases import clone, create_template
from tests.kit.pace import MINUTE, ms
from tests.kit.waiting import after, serving, until
from tools.postgres import Server

if TYPE_CHECKING:
    from holdfast._store.statement import Statement
    from tests.kit.ledger import Ledger

pytestmark = pytest.mark.nightly

SECONDS = 20.0


async def test_an_idle_worker_uses_few_transaction_ids(server: Server) -> None:
    """On its own server, where no other session uses any. It falls asleep first, and wakes up two or three times."""
    with Server(server.version, autovacuum="off") as own, clone(own, create_template(own)) as url:
        app = Holdfast(url)

        @app.job("act")
        async def act(job: Job[None]) -> None: ...

        with psycopg.connect(url, autocommit=True) as conn:

            def number(query: str) -> int:
                row = conn.execute(query.encode()).fetchone()
                assert row is not None
                return int(row[0])

            async with app.worker(idle_min=ms(1000), idle_max=ms(30_000)):
                await until(lambda: number("SELECT count(*) FROM holdfast.sleeper"))
                await until(lambda: number("SELECT count(*) FROM holdfast.worker WHERE reaped_at IS NOT NULL"))
                await after(3)
                ids = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
                first = number(ids)
                await after(SECONDS)
                used = number(ids) - first
                assert number("SELECT count(*) FROM holdfast.sleeper WHERE until > now()"), "it sleeps"
        assert used <= 8, "of which there were 17 when each sleep had three and each pass of the reaper one"


async def test_a_horizon_is_taken_anew_only_where_the_record_of_sleep_was_broken(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record renewed in time cannot be missed. If it is renewed too late, a producer may have found none."""
    monkeypatch.setattr(sleep_record, "RECORD_SECONDS", 4.0)
    monkeypatch.setattr(claim, "RENEWED_AFTER", 0.5)
    names = {statements()[name]: name for name in ("record_sleep", "look_ahead", "end_sleep")}
    asked: list[str] = []

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.sleeper"))
        claimer = serving(worker).claimer
        run, delay = claimer._link.run, 0.0

        async def run_and_tell(statement: Statement[Any]) -> Any:
            answer = await run(statement)
            if statement.sql in names:
                asked.append(names[statement.sql])
                await asyncio.sleep(delay)
            return answer

        monkeypatch.setattr(claimer._link, "run", run_and_tell)
        await until(lambda: asked.count("record_sleep") >= 2)
        start = asked.index("record_sleep") + 1  # what comes before may belong to the first sleep
        assert "look_ahead" not in asked[start:]
        assert "end_sleep" not in asked
        delay = 5.0
        await until(lambda: "look_ahead" in asked[start:])
        delay = 0.0
        assert asked[asked.index("look_ahead", start) - 1] == "record_sleep"
