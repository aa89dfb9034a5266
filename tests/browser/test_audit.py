"""The page of the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_audit_shows_the_person_the_action_and_the_number_of_jobs(visit: Visiting, live: Live) -> None:
    live.wait(*(shop.send_sms.new(f"audited-{number}") for number in range(3)))
    at = await visit(Role.DEVELOPER, "jobs?text=audited-")
    await at.button("Cancel…").click()
    await at.button("Cancel 3 jobs").click()
    await at.wait_for_message("Cancelled 3 jobs.")
    await at.go("audit")
    newest = at.page.get_by_role("table", name="Audit").locator("tbody tr").first
    await expect(newest.get_by_role("cell", name="dora developer")).to_be_visible()
    await expect(newest).to_contain_text("jobs.cancel")
    await expect(newest).to_contain_text("audited-")
    await expect(newest.get_by_role("cell").nth(4)).to_have_text("3")


async def test_making_a_token_is_written_down_without_its_secret(visit: Visiting, live: Live) -> None:
    at = await visit(Role.VIEWER, "audit")
    await at.settled()
    while await at.button("Look further").is_visible():
        await at.button("Look further").click()
        await at.settled()
    made = at.row("token.make", "oskar", table="Audit")
    await expect(made).to_have_count(1)
    await expect(made).to_contain_text("role operator")
    assert live.site.tokens[Role.OPERATOR].split("_", 2)[2] not in await at.page.content()
