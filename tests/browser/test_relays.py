"""Subscriptions: paused, replayed, and what the broker refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser import shop
from tests.browser.live import change_stream

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_paused_subscription_falls_behind_and_catches_up(visit: Visiting, live: Live) -> None:
    at = await visit(path="relays")
    ledger = at.page.get_by_role("listitem", name="ledger")
    await at.button("Pause ledger").click()
    try:
        await at.wait_for_message("ledger: nothing is read from now on")
        await expect(ledger).to_contain_text("paused")
        before = live.ended("ledger")
        live.pay(1, 2, 3)
        await at.button("Refresh").click()
        await expect(ledger.locator("dl dd").first).to_have_text("3")
        assert live.ended("ledger") == before
    finally:
        await at.button("Resume ledger").click()
    await at.wait_for_message("ledger: goes on")
    live.until_ended("ledger", before + 3)
    await expect(ledger).to_contain_text("reading")


async def test_a_replay_hands_over_again_what_was_published(visit: Visiting, live: Live) -> None:
    before = live.ended("ledger")
    first, *_ = live.pay(11, 12, 13)
    live.until_ended("ledger", before + 3)
    at = await visit(path="relays")
    await at.button("Replay ledger").click()
    await at.page.get_by_role("radio", name="after an event").check(force=True)
    await expect(at.dialog.get_by_role("button", name="Replay")).to_have_attribute("aria-disabled", "true")
    await at.dialog.get_by_label("Event id").fill(str(first))
    await at.dialog.get_by_role("button", name="Replay").click()
    await at.wait_for_message(f"ledger: hands over again what came after event {first}")
    live.until_ended("ledger", before + 5)


async def test_what_the_broker_refuses_is_parked_until_it_is_released(visit: Visiting, live: Live) -> None:
    live.pay(21, note="x" * shop.LARGEST_EVENT, key="huge")
    live.pay(22, key="huge")
    live.until_parked("huge", 2)
    at = await visit(path="relays")
    await at.page.get_by_role("link", name="Parked events of to-nats").click()
    await at.title("Parked events of to-nats")
    rows = at.row("huge", table="Parked events")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("JetStream refused")
    await expect(rows.last).to_contain_text("waits behind another")
    await change_stream(live.nats, max_msg_size=100 * shop.LARGEST_EVENT)
    try:
        await at.button("Release key huge").first.click()
        await at.dialog.get_by_role("button", name="Release", exact=True).click()
        await at.wait_for_message("to-nats: ")
        live.until_parked("huge", 0)
    finally:
        await change_stream(live.nats, max_msg_size=shop.LARGEST_EVENT)
    await at.button("Refresh").click()
    await expect(rows).to_have_count(0)
