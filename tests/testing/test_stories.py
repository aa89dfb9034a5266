"""Stories in a test: they sleep without waiting, stop at a point, and lose their worker after a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.testing import Testing

if TYPE_CHECKING:
    from holdfast import Holdfast, Job

    Conn = psycopg.AsyncConnection[Any]


@dataclass
class Approval:
    by: str


class Shop:
    """A story of two calls, two sleeps and a message, for async and for plain handlers."""

    def __init__(self, app: Holdfast) -> None:
        self.calls: list[str] = []
        self.approval = app.message("approval", Approval)

        @app.job("fulfil")
        async def fulfil(job: Job[None], order: int) -> str:
            charge = await job.step("charge", self.charge, order)
            await job.sleep("cool off", 3 * 86_400)
            await job.step("mail", self.mail)
            await job.sleep("wait", 3600)
            return f"{charge} {(await job.receive(self.approval)).by}"

        @app.job("fulfil now")
        def fulfil_now(job: Job[None], order: int) -> str:
            charge = job.sync.step("charge", self.charge_now, order)
            job.sync.sleep("cool off", 3 * 86_400)
            return f"{charge} {job.sync.receive(self.approval).by}"

        self.fulfil = fulfil
        self.fulfil_now = fulfil_now

    async def charge(self, order: int) -> str:
        return self.charge_now(order)

    def charge_now(self, order: int) -> str:
        self.calls.append("charge")
        return f"ch-{order}"

    async def mail(self) -> None:
        self.calls.append("mail")


async def test_time_passes_over_a_sleep(app: Holdfast, conn: Conn, kit: Testing) -> None:
    shop = Shop(app)
    handle = await app.enqueue(conn, shop.fulfil.new(7))
    (ran,) = await kit.drain()
    assert ran.outcome == "reschedule"
    assert shop.calls == ["charge"]
    await kit.travel(days=2)
    assert not len(await kit.drain())
    await kit.travel(days=1)
    await kit.drain()
    assert shop.calls == ["charge", "mail"]
    await app.send(conn, handle, shop.approval, Approval("ada"))
    await kit.travel(hours=1)
    (ran,) = await kit.drain()
    assert ran.result == "ch-7 ada"


async def test_a_story_runs_until_a_point(app: Holdfast, conn: Conn, kit: Testing) -> None:
    shop = Shop(app)
    handle = await app.enqueue(conn, shop.fulfil.new(7))
    await kit.run_until("wait")
    assert shop.calls == ["charge", "mail"]
    await kit.run_until("approval")
    assert await app.send(conn, handle, shop.approval, Approval("ada")) == "sent"
    (ran,) = await kit.drain()
    assert ran.result == "ch-7 ada"
    with pytest.raises(AssertionError, match="no story is suspended at approval; stories are suspended at: nowhere"):
        await kit.run_until("approval")


async def test_a_worker_dies_after_a_step(app: Holdfast, conn: Conn, kit: Testing) -> None:
    shop = Shop(app)
    await app.enqueue(conn, shop.fulfil.new(7))
    ran = await kit.drain(crash_after="charge")
    assert [one.outcome for one in ran] == ["released", "reschedule"]
    assert shop.calls == ["charge"]


def test_plain_handlers_on_a_sync_connection(app: Holdfast, database: str) -> None:
    """Their statements run in the thread of the handler that waits for them."""
    shop = Shop(app)
    with psycopg.connect(database) as conn:
        kit = Testing(app, conn).sync
        handle = app.sync.enqueue(conn, shop.fulfil_now.new(7))
        kit.drain(crash_after="charge")
        kit.run_until("approval")
        assert shop.calls == ["charge"]
        assert app.sync.send(conn, handle, shop.approval, Approval("ada")) == "sent"
        (ran,) = kit.drain()
        assert ran.result == "ch-7 ada"
        conn.rollback()


async def test_a_story_stops_before_its_children_and_gathers_them(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("label")
    async def label(box: int) -> str:
        return f"label {box}"

    @app.job("labels")
    async def labels(job: Job[None]) -> list[str]:
        return await job.gather("labels", label.new(1), label.new(2))

    await app.enqueue(conn, labels.new())
    await kit.run_until("labels")
    assert [job.status for job in await kit.enqueued(label)] == ["pending", "pending"]
    ran = await kit.drain()
    assert [(one.kind, one.outcome) for one in ran] == [
        ("label", "completed"),
        ("label", "completed"),
        ("labels", "completed"),
    ]
    assert [*ran][-1].result == ["label 1", "label 2"]


async def test_plain_handlers_on_an_async_connection(app: Holdfast, conn: Conn, kit: Testing) -> None:
    shop = Shop(app)
    handle = await app.enqueue(conn, shop.fulfil_now.new(7))
    await kit.run_until("approval")
    await app.send(conn, handle, shop.approval, Approval("ada"))
    (ran,) = await kit.drain()
    assert ran.result == "ch-7 ada"
