"""By keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live
    from tests.browser.visit import Visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_TABS = 120
PAGES = {
    "o": "Overview",
    "j": "Jobs",
    "c": "Chains",
    "d": "Dead letters",
    "q": "Queues",
    "l": "Limits",
    "w": "Workers",
    "r": "Runners",
    "e": "Relays",
    "h": "Archive",
    "a": "Audit",
}
FOCUSED = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText).trim()"


async def tab_to(at: Visit, name: str) -> None:
    """Press Tab until what has this name is focused, and see that it shows."""
    for _ in range(MOST_TABS):
        if await at.page.evaluate(FOCUSED) == name:
            shown = await at.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert shown != "none", f"{name} does not show that it is focused"
            return
        await at.page.keyboard.press("Tab")
    pytest.fail(f"{name} was not reached within {MOST_TABS} tabs")


async def test_a_search_and_an_action_need_no_pointer(visit: Visiting, live: Live) -> None:
    ids = live.wait(shop.send_sms.new("keys-1"), shop.send_sms.new("keys-2"))
    at = await visit()
    await at.title("Overview")
    await at.page.keyboard.press("g")
    await at.page.keyboard.press("j")
    await at.title("Jobs")
    await at.page.keyboard.press("/")
    await expect(at.page.get_by_label("Kind", exact=True)).to_be_focused()
    await at.page.keyboard.press("Tab")
    await at.page.keyboard.press("Tab")
    await expect(at.page.get_by_label("Text in payload")).to_be_focused()
    await at.page.keyboard.type("keys-")
    await at.page.keyboard.press("Enter")
    await expect(at.row("sms.send", table="Jobs")).to_have_count(2)
    await tab_to(at, "Cancel…")
    await at.page.keyboard.press("Enter")
    await expect(at.dialog).to_contain_text("2 jobs to cancel")
    await tab_to(at, "Cancel 2 jobs")
    await at.page.keyboard.press("Enter")
    await at.wait_for_message("Cancelled 2 jobs.")
    await expect(at.dialog).to_have_count(0)
    assert set(live.statuses(ids)) == {"cancelled"}


async def test_a_dialog_keeps_the_focus_and_gives_it_back(visit: Visiting) -> None:
    at = await visit(path="queues")
    await at.button("Edit mail").focus()
    await at.page.keyboard.press("Enter")
    await expect(at.dialog).to_be_visible()
    for _ in range(12):
        await at.page.keyboard.press("Tab")
        assert await at.page.evaluate("document.activeElement.matches('body, dialog *')")
    await at.page.keyboard.press("Escape")
    await expect(at.dialog).to_have_count(0)
    await expect(at.button("Edit mail")).to_be_focused()


async def test_every_page_has_its_keys_and_help_tells_them(visit: Visiting) -> None:
    at = await visit()
    await at.title("Overview")
    await at.page.keyboard.press("?")
    for key, title in PAGES.items():
        await expect(at.dialog.locator("dl > div").filter(has_text=title)).to_contain_text(f"g{key}")
    await at.page.keyboard.press("Escape")
    await expect(at.dialog).to_have_count(0)
    for key, title in reversed(PAGES.items()):
        await at.page.keyboard.press("g")
        await at.page.keyboard.press(key)
        await at.title(title)


async def test_keys_that_are_turned_off_stay_off(visit: Visiting) -> None:
    at = await visit(fresh=True)
    await at.title("Overview")
    await at.page.keyboard.press("?")
    await at.page.get_by_label("Keys are shortcuts").uncheck()
    await at.page.keyboard.press("Escape")
    await at.page.reload()
    await at.title("Overview")
    await at.page.keyboard.press("?")
    await at.page.keyboard.press("g")
    await at.page.keyboard.press("j")
    await at.title("Overview")
    await expect(at.dialog).to_have_count(0)


async def test_the_first_tab_leads_past_the_menu(visit: Visiting) -> None:
    at = await visit(path="queues")
    await at.settled()
    await at.page.evaluate("document.activeElement.blur()")
    await at.page.keyboard.press("Tab")
    await expect(at.button("Skip to the page")).to_be_focused()
    await at.page.keyboard.press("Enter")
    await expect(at.page.get_by_role("main")).to_be_focused()
