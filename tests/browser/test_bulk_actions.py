"""Actions on all jobs of a filter: at a rate, with their progress, stopped and resumed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_slow_action_goes_on_without_its_page_and_is_stopped_and_resumed(visit: Visiting, live: Live) -> None:
    live.wait(*(shop.send_sms.new(f"slow {number}") for number in range(30)))
    at = await visit(path="jobs?kind=sms.send&status=pending")
    await at.button("Cancel…").click()
    await at.dialog.get_by_label("How fast").select_option("1 a second")
    await at.dialog.get_by_role("button", name=re.compile(r"Cancel \d+ jobs")).click()
    await at.wait_for_message("The workers carry on with the rest.")
    await at.go("bulk-actions")
    action = at.page.get_by_role("listitem", name="Cancel: sms.send")
    await expect(action).to_contain_text("under way")
    await expect(action.get_by_role("progressbar")).to_be_visible()
    await action.get_by_role("button", name="Stop").click()
    await expect(action).to_contain_text("stopped by")
    assert await at.violations() == []
    await action.get_by_role("button", name="Resume").click()
    await expect(action).to_contain_text("under way")
    viewer = await visit(Role.VIEWER, path="bulk-actions")
    await expect(viewer.page.get_by_role("listitem", name="Cancel: sms.send")).to_be_visible()
    await expect(viewer.page.get_by_role("button", name="Stop Cancel: sms.send")).to_be_disabled()
    await action.get_by_role("button", name="Stop").click()
    await expect(action).to_contain_text("stopped by")
