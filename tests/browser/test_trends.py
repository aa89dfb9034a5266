"""The past on a page: its range stands in the link, and a job shows how long it waited and ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_range_is_in_the_link_and_the_link_shows_it(visit: Visiting, live: Live) -> None:
    live.until_all(live.enqueue(*(shop.send_sms.new(f"+{number}") for number in range(5))), "completed")
    at = await visit(path="trends?range=6h&by=kind")
    await expect(at.page.get_by_role("radio", name="6 hours")).to_be_checked()
    await expect(at.row("sms.send", table="Trends")).to_have_count(1)
    await at.page.get_by_role("radio", name="7 days").check(force=True)
    await expect(at.page).to_have_url(re.compile(r"range=7d"))
    await expect(at.page.get_by_role("slider", name=re.compile("Throughput, completed in 2"))).to_have_count(1)
    await at.row("sms.send", table="Trends").get_by_role("link", name="sms.send").click()
    await expect(at.page).to_have_url(re.compile(r"range=7d.*kind=sms\.send"))
    await expect(at.row("sms", table="Trends")).to_have_count(1)
    await at.page.reload()
    await expect(at.page.get_by_role("radio", name="7 days")).to_be_checked()


async def test_a_job_shows_how_long_it_waited_and_ran(visit: Visiting, live: Live) -> None:
    (job,) = live.enqueue(shop.send_sms.new("+1"))
    live.until_all([job], "completed")
    at = await visit(path=f"jobs/{job}")
    facts = at.page.get_by_label("Facts")
    await expect(facts.locator("dt", has_text="Waited")).to_have_count(1)
    await expect(facts.locator("dt", has_text=re.compile("^Ran$"))).to_have_count(1)
    await expect(facts).to_contain_text("from first due to ended")
