"""Queues: paused, drained, and given other limits while the worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser import shop
from tests.browser.live import until

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_paused_queue_waits_until_it_is_resumed(visit: Visiting, live: Live) -> None:
    at = await visit(path="queues")
    await at.button("Pause pdf").click()
    try:
        await at.wait_for_message("pdf: workers claim nothing more from their next heartbeat on")
        await expect(at.row("pdf", table="Queues")).to_contain_text("paused")
        (made,) = live.enqueue(shop.render.new(1))
        live.until_all(live.enqueue(shop.send_sms.new("+1")), "completed")  # the worker is awake meanwhile
        assert live.statuses([made]) == ["pending"]
        await at.button("Resume pdf").click()
        await at.wait_for_message("pdf: goes on")
        await expect(at.button("Pause pdf")).to_be_visible()
        live.until_all([made], "completed")
    finally:
        live.conn.execute("DELETE FROM holdfast.queue WHERE name = 'pdf'")


async def test_a_queue_is_drained_after_it_was_shown_what_that_means(visit: Visiting, live: Live) -> None:
    ids = live.wait(*(shop.add_points.new(shop.Points(f"drained-{number}", 1)) for number in range(3)))
    at = await visit(path="queues")
    await at.button("Cancel waiting jobs of loyalty").click()
    await expect(at.dialog).to_contain_text("3 jobs to cancel")
    await expect(at.dialog.get_by_role("table").locator("tbody tr")).to_have_count(3)
    assert set(live.statuses(ids)) == {"pending"}
    await at.button("Cancel 3 jobs").click()
    await at.wait_for_message("Cancelled 3 jobs.")
    assert set(live.statuses(ids)) == {"cancelled"}
    await at.button("Cancel waiting jobs of ledger").click()
    await expect(at.dialog).to_contain_text("There is nothing to cancel.")
    await expect(at.button("Cancel 0 jobs")).to_have_attribute("aria-disabled", "true")


async def test_concurrency_is_set_while_the_worker_runs(visit: Visiting, live: Live) -> None:
    at = await visit(path="queues")
    try:
        await at.button("Edit reports").click()
        await at.dialog.get_by_label("Concurrency of each worker").fill("1")
        await at.dialog.get_by_label("Per second and worker").fill("500")
        await at.dialog.get_by_role("button", name="Save").click()
        await at.wait_for_message("reports: workers follow with their next heartbeat")
        await expect(at.row("reports", table="Queues")).to_contain_text("1 at once, 500/s")
        since = "SELECT heartbeat_at > updated_at FROM holdfast.worker, holdfast.queue WHERE queue.name = 'reports'"
        until(lambda: live.conn.execute(since).fetchone() == (True,), "a heartbeat since then")
        ids = live.enqueue(*(shop.build_report.new(f"limited {number}") for number in range(3)))
        until(lambda: "processing" in live.statuses(ids), "one of them runs")
        live.until_all(live.enqueue(shop.send_sms.new("+1")), "completed")
        assert sorted(live.statuses(ids)) == ["pending", "pending", "processing"]
        await at.button("Edit reports").click()
        await at.dialog.get_by_label("Concurrency of each worker").fill("")
        await at.dialog.get_by_label("Per second and worker").fill("")
        await at.dialog.get_by_role("button", name="Save").click()
        await expect(at.row("reports", table="Queues")).not_to_contain_text("at once")
        live.until_all(ids, "processing")
    finally:
        live.conn.execute("DELETE FROM holdfast.queue WHERE name = 'reports'")
        live.cancel_all("report.build")


async def test_a_limit_that_cannot_be_is_not_sent(visit: Visiting) -> None:
    at = await visit(path="queues")
    await at.button("Edit mail").click()
    field = at.dialog.get_by_label("Concurrency of each worker")
    await field.fill("-1")
    await at.dialog.get_by_role("button", name="Save").click()
    await expect(at.dialog).to_be_visible()
    assert await field.evaluate("field => !field.validity.valid")
