"""Behind a full claim, plain claims follow: for a while, and a few if claims are slow, but not for long."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._engine.jobs import due
from holdfast._engine.link import Link
from holdfast._store.statement import statements
from tests.kit.pace import MINUTE
from tests.kit.waiting import until

if TYPE_CHECKING:
    import psycopg

    from holdfast import Holdfast, Job
    from holdfast._store.statement import Statement
    from tests.kit.ledger import Ledger

JOBS = 60


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the claims, as they are sent."""
    names, found = {statements()[name]: name for name in ("claim_jobs", "claim_plain")}, list[str]()
    ask = Link._ask

    async def note(self: Link, conn: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Any:
        if name := names.get(statement.sql):
            found.append(name)
        return await ask(self, conn, statement)

    monkeypatch.setattr(Link, "_ask", note)
    return found


@pytest.mark.parametrize("plain", [due.LEAST_PLAIN, 0])
async def test_where_claims_are_slow_some_plain_ones_follow(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, claims: list[str], plain: int
) -> None:
    monkeypatch.setattr(due, "WHOLE_EVERY", -1.0)  # every claim takes longer than that
    monkeypatch.setattr(due, "LONGEST_PLAIN", 60.0 if plain else -1.0)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.do("SELECT holdfast.enqueue('act') FROM generate_series(1, %s)", JOBS)
    async with app.worker(batch_size=2, concurrency=2, **MINUTE):
        await until(lambda: ledger.completed() == JOBS)
    in_a_row = [len([*group]) for name, group in groupby(claims) if name == "claim_plain"]
    assert max(in_a_row, default=0) == plain
