"""Limits: what they allow, who set that, and what they hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_limit_is_set_and_reset(visit: Visiting, live: Live) -> None:
    live.declare("sms-gateway", concurrency=4, starts=100, period_ms=60_000, burst=20)
    at = await visit(path="limits")
    row = at.row("sms-gateway", table="Limits")
    await expect(row).to_contain_text("4 at once; 100/min, 20 after a pause")
    await expect(row).to_contain_text("code")
    await at.button("Edit sms-gateway").click()
    await at.dialog.get_by_label("Jobs at once").fill("2")
    await at.dialog.get_by_label("Rate").fill("")
    await at.dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("2 at once")
    await expect(row).not_to_contain_text("100/min")
    await expect(row).not_to_contain_text("code")
    await at.button("Reset sms-gateway").click()
    await expect(row).to_contain_text("4 at once; 100/min")
