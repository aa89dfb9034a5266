"""Runners: run now, paused, resumed, and the history of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast import Every
from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_runner_that_is_run_now_leaves_a_run(visit: Visiting, live: Live) -> None:
    at = await visit(path="runners")
    await at.button("Run now: carts.sweep").click()
    await at.wait_for_message("carts.sweep: will run once, soon")
    live.until_run("carts.sweep", "completed")
    await at.button("Refresh").click()
    await expect(at.row("carts.sweep", table="Runners")).to_contain_text("deleted 12")
    await at.page.get_by_role("link", name="carts.sweep").click()
    await at.title("carts.sweep")
    await expect(at.row("completed", table="Runs of carts.sweep").first).to_contain_text("deleted 12")


async def test_a_paused_runner_has_no_next_time_until_it_is_resumed(visit: Visiting, live: Live) -> None:
    at = await visit(path="runners")
    row = at.row("reports.monthly", table="Runners")
    await expect(row).to_contain_text("0 6 1 * *")
    await at.button("Pause reports.monthly").click()
    await at.wait_for_message("reports.monthly: paused; what runs now goes on")
    await expect(row).to_contain_text("paused")
    await at.button("Resume reports.monthly").click()
    await at.wait_for_message("reports.monthly: goes on with its next slot")
    await expect(row).to_contain_text("then")


async def test_a_runner_that_fails_is_a_problem_until_it_has_run_well(visit: Visiting, live: Live) -> None:
    at = await visit()
    problem = at.page.get_by_label("Whether all is well").get_by_role("listitem").filter(has_text="stock.sync")
    with live.outage("stock", "the stock room is locked"):
        await at.go("runners")
        await at.button("Run now: stock.sync").click()
        live.until_run("stock.sync", "failed")
        await at.go()
        await expect(problem).to_contain_text("The last run of stock.sync failed: ConnectionError")
        await problem.get_by_role("link").click()
        await at.title("stock.sync")
        await expect(at.row("failed", table="Runs of stock.sync").first).to_contain_text("the stock room is locked")
    await at.go("runners")
    await at.button("Run now: stock.sync").click()
    live.until_run("stock.sync", "completed")
    await at.go()
    await expect(problem).to_have_count(0)


async def test_a_schedule_that_was_added_is_edited_and_removed(visit: Visiting, live: Live) -> None:
    shop.app.sync.add_schedule(live.conn, "customer-7", shop.build_report.new("weekly", seconds=1.0), every=Every(7200))
    at = await visit(path="runners")
    row = at.row("customer-7", table="Runners")
    await expect(row).to_contain_text("every 7200s schedule of a job, added at run time")
    await at.button("Edit customer-7").click()
    await expect(at.dialog.get_by_label("Seconds between two runs")).to_have_value("7200")
    await expect(at.dialog).to_contain_text('"weekly"')
    await at.dialog.get_by_label("by cron").check()
    await at.dialog.get_by_label("Minute, hour, day").fill("0 9 * * 1")
    await at.dialog.get_by_label("Time zone").fill("Asia/Tokyo")
    await at.dialog.get_by_role("button", name="Save").click()
    await at.wait_for_message("customer-7: has new times from its next slot on")
    await expect(row).to_contain_text("0 9 * * 1 Asia/Tokyo")
    await expect(at.button("Remove reports.monthly")).to_have_count(0)
    await at.button("Remove customer-7").click()
    await at.dialog.get_by_role("button", name="Remove").click()
    await at.wait_for_message("customer-7: removed")
    await expect(row).to_have_count(0)
