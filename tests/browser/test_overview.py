"""Whether all is well, at a glance and live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser import shop

if TYPE_CHECKING:
    from playwright.async_api import Route

    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_all_is_well_until_something_is_not_and_then_it_says_what_to_do(visit: Visiting, live: Live) -> None:
    live.conn.execute("DELETE FROM holdfast.tally WHERE outcome = 'failed'")  # of other tests
    live.conn.execute("DELETE FROM holdfast.parked")
    at = await visit()
    verdict = at.page.get_by_label("Whether all is well")
    await expect(verdict.get_by_role("heading")).to_have_text("All is well")
    await expect(verdict).to_contain_text("1 live worker")
    live.enqueue(shop.add_points.new(shop.Points("ann", 7)))
    try:
        await expect(verdict.get_by_role("heading")).to_have_text("1 problem")
        problem = verdict.get_by_role("listitem")
        await expect(problem).to_contain_text(
            "critical 1 job of loyalty.points.add is due in the queue loyalty, and no live worker serves it."
        )
        await problem.get_by_role("link", name="Workers").click()
        await at.title("Workers")
        unserved = at.page.get_by_label("Kinds without a worker")
        await expect(unserved).to_contain_text("1 kind has due jobs but no live worker")
        await unserved.get_by_role("link", name="loyalty.points.add").click()
        await at.title("Jobs")
        await expect(at.row("loyalty.points.add", table="Jobs")).to_have_count(1)
        await at.go()
    finally:
        live.conn.execute("DELETE FROM holdfast.job WHERE kind = 'loyalty.points.add'")
    await expect(verdict.get_by_role("heading")).to_have_text("All is well")


async def test_what_the_worker_does_arrives_without_asking(visit: Visiting, live: Live) -> None:
    at = await visit()
    await expect(at.page.locator(".live")).to_contain_text("Live")
    asked: list[str] = []
    at.page.on("request", lambda request: asked.append(request.url))
    cells = at.row("sms", table="Queues").get_by_role("cell")
    before = live.ended("sms.send")
    live.until_all(live.enqueue(*(shop.send_sms.new(f"+{number}") for number in range(7))), "completed")
    await expect(cells.nth(2)).to_have_text(str(before + 7))
    assert asked == [], "it came over the stream"


async def test_it_can_be_held_still(visit: Visiting) -> None:
    at = await visit()
    mark = at.page.locator(".live")
    await expect(mark).to_contain_text("Live")
    await at.button("Pause").click()
    await expect(mark).to_contain_text("Paused")
    await at.button("Go on").click()
    await expect(mark).to_contain_text("Live")


async def test_a_chart_is_read_by_arrow_keys(visit: Visiting, live: Live) -> None:
    live.until_all(live.enqueue(shop.send_sms.new("+1")), "completed")
    at = await visit()
    chart = at.page.get_by_role("slider", name="Throughput")
    await expect(chart).to_have_attribute("aria-valuemax", "59")
    await chart.focus()
    await at.page.keyboard.press("End")
    await expect(chart).to_have_attribute("aria-valuenow", "59")
    await at.page.keyboard.press("ArrowLeft")
    await expect(chart).to_have_attribute("aria-valuenow", "58")


async def test_keys_choose_nothing_while_there_is_nothing_to_choose(visit: Visiting) -> None:
    at = await visit(Role.VIEWER, "nowhere", fresh=True)
    answer = asyncio.Event()

    async def hold(route: Route) -> None:
        await answer.wait()
        await route.continue_()

    await at.page.route("**/api/v1/overview*", hold)
    await at.go()
    chart = at.page.get_by_role("slider", name="Throughput")
    await chart.focus()
    await at.page.keyboard.press("End")
    answer.set()
    await expect(chart).to_have_attribute("aria-valuemax", "59")
    await expect(chart).to_have_attribute("aria-valuenow", "58")  # the last minute that is over
