"""Every page: within a phone's width, in both themes, for everybody, without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser.places import PLACES, furnish
from tests.browser.visit import Visit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from tests.browser.conftest import Visiting
    from tests.browser.live import Live
    from tests.browser.places import Place

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
TALLER_PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1024, "height": 768}
CUT = "[...document.querySelectorAll('.table-box')].filter(box => box.scrollWidth > box.clientWidth).length"
DIALOGS = {
    "job action": ("jobs?kind=mail.send", "Cancel…"),
    "edit queue": ("queues", "Edit mail"),
    "drain queue": ("queues", "Cancel waiting jobs of mail"),
    "edit limit": ("limits", "Edit mail-server"),
    "change retention": ("archive", "Change run"),
    "replay": ("relays", "Replay ledger"),
    "keyboard help": ("", "Keyboard help"),
}


@pytest.fixture(scope="module")
def places(live: Live) -> dict[str, Place]:
    return furnish(live)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["light", "dark"])
async def themed(browser: Browser, live: Live, request: pytest.FixtureRequest) -> AsyncIterator[Visit]:
    async with Visit(browser, live.site, Role.OPERATOR, color_scheme=request.param) as at:
        yield at


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def phone(browser: Browser, live: Live) -> AsyncIterator[Visit]:
    options: dict[str, Any] = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    async with Visit(browser, live.site, Role.OPERATOR, **options) as at:
        yield at


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def laptop(browser: Browser, live: Live) -> AsyncIterator[Visit]:
    async with Visit(browser, live.site, Role.OPERATOR, viewport=LAPTOP) as at:
        yield at


@pytest.mark.parametrize("name", PLACES)
async def test_axe_finds_nothing_in_a_page(themed: Visit, places: dict[str, Place], name: str) -> None:
    await themed.go(places[name].path)
    await themed.title(places[name].title)
    await themed.settled()
    assert await themed.violations() == []
    themed.check()


@pytest.mark.parametrize("name", DIALOGS)
async def test_axe_finds_nothing_in_a_dialog(themed: Visit, name: str) -> None:
    path, button = DIALOGS[name]
    await themed.go(path)
    await themed.button(button).click()
    await expect(themed.dialog).to_be_visible()
    await themed.settled()
    assert await themed.violations() == []
    await themed.page.keyboard.press("Escape")
    await expect(themed.dialog).to_have_count(0)
    themed.check()


@pytest.mark.parametrize("name", PLACES)
async def test_a_phone_need_not_scroll_sideways(phone: Visit, places: dict[str, Place], name: str) -> None:
    await phone.go(places[name].path)
    await phone.title(places[name].title)
    await phone.settled()
    width = await phone.page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(width) <= PHONE["width"]
    phone.check()


@pytest.mark.parametrize("name", PLACES)
async def test_a_small_laptop_shows_every_column_and_every_action(
    laptop: Visit, places: dict[str, Place], name: str
) -> None:
    await laptop.go(places[name].path)
    await laptop.title(places[name].title)
    await laptop.settled()
    assert await laptop.page.evaluate(CUT) == 0
    laptop.check()


async def test_the_overview_of_a_phone_is_three_screens_at_most(visit: Visiting) -> None:
    at = await visit(viewport=TALLER_PHONE, has_touch=True, is_mobile=True)
    await at.settled()
    assert await at.page.evaluate("document.documentElement.scrollHeight / innerHeight") <= 3


async def test_the_menu_of_a_phone_opens_and_leads_on(phone: Visit) -> None:
    await phone.go()
    await phone.button("Menu").click()
    await phone.page.get_by_role("link", name="Queues", exact=True).click()
    await phone.title("Queues")
    await expect(phone.button("Menu")).to_have_attribute("aria-expanded", "false")


async def test_a_theme_that_is_chosen_is_kept(visit: Visiting) -> None:
    at = await visit(color_scheme="light")
    await at.title("Overview")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await at.page.evaluate(ground)
    await at.page.keyboard.press("t")
    await at.page.keyboard.press("t")
    await expect(at.page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = await at.page.evaluate(ground)
    await at.page.reload()
    await at.title("Overview")
    assert await at.page.evaluate(ground) == dark != light
