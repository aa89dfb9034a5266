"""Every tab shows what a live worker did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._top.database import SHEETS
from tests.kit.waiting import until
from tests.top.shop import shop
from tests.top.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.top.shop import Shop
    from tests.top.watching import Watched


@pytest.fixture
async def busy(database: str) -> AsyncIterator[Shop]:
    """A shop in which mails were sent, invoices failed, a report is being built, and another kind has no worker."""
    async with shop(database) as open_shop:
        await open_shop.enqueue("mail.send", 3)
        await open_shop.enqueue("invoice.render", 2)
        await open_shop.enqueue("report.build")
        await open_shop.pay(7)
        await open_shop.conn.execute("SELECT holdfast.enqueue('orphan', '{}'::json, 'default', 5, 3)")
        yield open_shop
        open_shop.gate.set()


async def row(watched: Watched, column: str, value: str, **expected: str) -> dict[str, str]:
    """Wait for a row that has these cells."""

    def found() -> dict[str, str] | None:
        return next((row for row in watched.cells if row[column] == value and expected.items() <= row.items()), None)

    await until(found)
    return found() or {}


async def test_queues(busy: Shop, database: str) -> None:
    async with watching(database, "1") as watched:
        await row(watched, "queue", "mail", **{"state": "open", "done/h": "3", "failed/h": "0", "workers": "1"})
        await row(watched, "queue", "reports", state="open", running="1")
        await row(watched, "queue", "default", **{"due": "1", "failed/h": "2"})


@pytest.mark.nightly
async def test_kinds(busy: Shop, database: str) -> None:
    async with watching(database, "2") as watched:
        await row(watched, "kind", "orphan", queue="default", due="1", workers="none")
        await row(watched, "kind", "mail.send", **{"queue": "mail", "workers": "1", "done/h": "3"})


@pytest.mark.nightly
async def test_workers(busy: Shop, database: str) -> None:
    async with watching(database, "3", size=(120, 30)) as watched:
        found = await row(watched, "worker", "w1", state="live", done="4", failed="2")
        assert set(found["queues"].split()) == {"default", "mail", "reports"}
        await watched.press("enter")
        await until(lambda: "Worker w1" in watched.text)
        assert "invoice.render" in watched.text


@pytest.mark.nightly
async def test_runners(busy: Shop, database: str) -> None:
    async with watching(database, "4") as watched:
        await row(watched, "runner", "sweep", schedule="every 3600s")
        await watched.press("slash", *"sweep", "enter", "r")
        await until(lambda: "Run sweep now?" in watched.text)
        await watched.press("y")
        await until(busy.swept.is_set)
        await row(watched, "runner", "sweep", outcome="completed", did="3 swept")
        await watched.press("enter")
        await until(lambda: "Runs of sweep" in watched.text)
        assert "3 swept" in watched.text


@pytest.mark.nightly
async def test_relays(busy: Shop, database: str) -> None:
    async with watching(database, "5") as watched:
        await row(watched, "subscription", "ledger", state="reading", behind="0", parked="0")
        await watched.press("enter")
        await until(lambda: "Subscription ledger" in watched.text)


async def test_dead_letters(busy: Shop, database: str) -> None:
    async with watching(database, "6") as watched:
        await row(
            watched, "kind", "invoice.render", error="ValueError", jobs="2", queue="default", message="no template"
        )
        await watched.press("enter")
        await until(
            lambda: watched.screen.grid.table.name == "jobs" and watched.column("status") == ["failed", "failed"]
        )
        assert "status:failed kind:invoice.render" in watched.text


@pytest.mark.nightly
async def test_jobs(busy: Shop, database: str) -> None:
    async with watching(database, "7") as watched:
        await until(lambda: watched.column("status").count("completed") == 4)
        assert watched.column("status").count("failed") == 2
        assert watched.column("id") == sorted(watched.column("id"), key=int, reverse=True)
        await watched.press("slash", *"status:failed", "enter")
        await until(lambda: watched.column("status") == ["failed", "failed"])
        await watched.press("enter")
        await until(lambda: "ValueError: no template" in watched.text)


@pytest.mark.nightly
async def test_the_line_above_all(busy: Shop, database: str) -> None:
    async with watching(database) as watched:
        await until(lambda: "1 job of orphan is due" in watched.text)
        assert "✘ 1 problem" in watched.text
        assert "1 worker" in watched.text
        await busy.conn.execute("DELETE FROM holdfast.job WHERE kind = 'orphan'")
        await until(lambda: "✔ All is well" in watched.text)
        # Of one minute, or of the two in which they ended.
        await until(lambda: {*"▁▂▃▄"} & {*watched.text.splitlines()[2]})
        await watched.press("exclamation_mark")
        await until(lambda: "All is well." in watched.text)


@pytest.mark.nightly
async def test_everything_fits_into_80_by_24_and_survives_less(busy: Shop, database: str) -> None:
    async with watching(database) as watched:
        for number, sheet in enumerate(SHEETS, 1):
            await watched.press(str(number))
            await until(lambda: len(watched.cells) > 0)
            await watched.pilot.pause()
            lines = watched.text.splitlines()
            assert len(lines) == 24
            assert all(f"{n} {each.title}" in watched.text for n, each in enumerate(SHEETS, 1))
            assert sheet.columns[0].title in watched.text
            assert "? Help  q Quit" in lines[-1]
        await watched.pilot.resize_terminal(30, 8)
        await watched.look()
        assert len(watched.text.splitlines()) == 8
        await watched.pilot.resize_terminal(200, 60)
        await watched.look()
        assert watched.screen.reading.trouble is None


@pytest.mark.nightly
async def test_the_keys_are_explained(database: str) -> None:
    async with watching(database) as watched:
        await watched.press("question_mark")
        await until(lambda: "Sorting and filtering" in watched.text)
        await watched.press("end")
        await until(lambda: "every few seconds, not at every look" in watched.text)
        await watched.press("q")
        assert len(watched.top.screen_stack) == 1
