"""A worker dies before and after every statement of a story of ten steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job, Retry, Step
from tests.stories.crashing import Crew

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


@dataclass
class Charge:
    id: int


class Shop:
    """The outer world: what was called, and which results the handler saw under each name."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.calls: Counter[str] = Counter()
        self.seen: dict[str, set[object]] = {}

    def note(self, name: str, value: object) -> None:
        self.seen.setdefault(name, set()).add(repr(value))

    async def charge(self, order: int) -> Charge:
        self.calls["charge"] += 1
        return Charge(order * 1000 + self.calls["charge"])

    async def decline(self) -> None:
        """Succeed when it is called again: then the handler would take the other branch."""
        self.calls["decline"] += 1
        if self.calls["decline"] == 1:
            raise LookupError("declined")

    async def book(self, conn: psycopg.AsyncConnection[Any], name: str) -> int:
        await conn.execute("INSERT INTO entry VALUES (%s)", [name])
        row = await (await conn.execute("SELECT count(*) FROM entry")).fetchone()
        assert row is not None
        return int(row[0])


def story_of(app: Holdfast, shop: Shop) -> tuple[Any, Any]:
    approval = app.message("approval", Charge)

    @app.job("label", retry=Retry(max_attempts=1000))
    async def label(box: int) -> Charge:
        return await shop.charge(box)

    @app.job("story", retry=Retry(max_attempts=1000))
    async def fulfil(job: Job[None], order: int) -> str:
        shop.note("charge", await job.step("charge", shop.charge, order))
        async with await psycopg.AsyncConnection.connect(shop.database) as conn:
            shop.note("book", await job.step_on(conn, "book", shop.book, "first"))
        try:
            await job.step("decline", shop.decline)
        except LookupError as exc:
            shop.note("branch", str(exc))
        shop.note("fee", await job.step("fee", shop.charge, 1))
        await job.sleep("cool off", 3600)
        pair = await asyncio.gather(*[job.step(Step("part", key=n), shop.charge, n) for n in range(2)])
        shop.note("pair", pair)
        shop.note("labels", await job.gather("labels", label.new(1), label.new(2)))
        shop.note("approval", await job.receive(approval))
        shop.note("none", await job.receive(approval, key=2, timeout=60))
        async with await psycopg.AsyncConnection.connect(shop.database) as conn:
            shop.note("book again", await job.step_on(conn, "book again", shop.book, "second"))
        return "done"

    return fulfil, label


async def run(app: Holdfast, ledger: Ledger, *, at: int | None, after: bool) -> tuple[Crew, Shop]:
    ledger.do("TRUNCATE entry, holdfast.job_history")
    shop = Shop(ledger.url)
    kind, child = story_of(app, shop)
    job = ledger.enqueue_one(kind.new(7))
    ledger.do("SELECT holdfast.send_message(%s, 'approval', '{\"id\": 5}')", job)
    crew = Crew(ledger.url, kind, {} if at is None else {at: after}, child=child)
    await crew.run()
    assert ledger.job(job)[:3] == ("completed", ledger.job(job).attempt, "done")
    return crew, shop


@pytest.mark.nightly(daily=["after"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_every_statement(ledger: Ledger, after: bool) -> None:
    ledger.do("CREATE TABLE entry (name text NOT NULL)")
    whole, _ = await run(Holdfast(ledger.url), ledger, at=None, after=after)
    # All statements that a story makes; a new one is met here by itself.
    assert set(whole.statements) == {
        "load_steps",
        "save_steps",
        "save_step",
        "open_transactions",
        "take_message",
        "gather_jobs",
        "finish",
    }
    for at in range(len(whole.statements)):
        crew, shop = await run(Holdfast(ledger.url), ledger, at=at, after=after)
        where = f"{'after' if after else 'before'} statement {at}, {crew.statements[at]}"
        assert crew.died, where
        # Exactly once, whatever happened.
        assert ledger.rows("SELECT name FROM entry ORDER BY name") == [("first",), ("second",)], where
        # Every attempt saw the same results, except for a function whose record had not been written.
        names = {"charge", "book", "branch", "fee", "pair", "labels", "approval", "none", "book again"}
        assert shop.seen.keys() | {"branch"} == names, where
        assert {name: len(values) for name, values in shop.seen.items() if len(values) != 1} == {}, where
        # One function at most was called twice: the one whose record was under way; of a pair, both.
        assert sum(shop.calls.values()) - 7 <= (2 if crew.statements[at] == "save_steps" else 1), where
        assert (
            ledger.value("SELECT (SELECT count(*) FROM holdfast.step) + (SELECT count(*) FROM holdfast.message)") == 0
        )
