"""The states of a page: empty, slow, without a server, and after a session has ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._ops.caller import Role, Token
from tests.browser.conftest import PATIENCE_MS
from tests.browser.live import serving
from tests.browser.visit import Visit
from tests.kit.commands import holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Route

    from tests.browser.conftest import Visiting
    from tests.browser.live import Live, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOTHING = {
    "": "No queue yet",
    "jobs": "No jobs yet",
    "chains": "No chains",
    "dead-letters": "No dead letters",
    "queues": "No queue yet",
    "limits": "No limit yet",
    "workers": "No worker has ever run here",
    "runners": "No runners yet",
    "runners/carts.sweep": "No runs yet",
    "relays": "No subscription yet",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(browser: Browser, empty: Site) -> AsyncIterator[Visit]:
    async with Visit(browser, empty, Role.VIEWER) as at:
        yield at


@pytest.mark.parametrize("path", NOTHING)
async def test_a_page_without_anything_says_so(bare: Visit, path: str) -> None:
    await bare.go(path)
    await expect(bare.page.get_by_role("heading", name=NOTHING[path])).to_be_visible()
    await bare.settled()
    assert await bare.violations() == []
    bare.check()


@pytest.mark.parametrize("path", ["queues", "jobs", "dead-letters", "workers"])
async def test_a_page_that_takes_long_shows_that_it_loads(visit: Visiting, path: str) -> None:
    at = await visit(Role.VIEWER, "nowhere", fresh=True)
    answer = asyncio.Event()

    async def hold(route: Route) -> None:
        await answer.wait()
        await route.continue_()

    await at.page.route(f"**/api/v1/{path}*", hold)
    await at.go(path)
    await expect(at.page.locator("[aria-busy=true]").first).to_be_visible()
    await expect(at.page.locator(".bone").first).to_be_visible()
    answer.set()
    await at.settled()
    await expect(at.page.locator(".bone")).to_have_count(0)


async def test_a_lost_server_is_reported_and_the_content_stays(visit: Visiting, live: Live, tmp_path: Path) -> None:
    with serving(live.database, tmp_path, tokens=live.site.tokens) as site:
        overview = await visit(Role.OPERATOR, site=site, fresh=True)
        at = await visit(Role.OPERATOR, "queues", site=site, fresh=True)
        await expect(overview.page.locator(".live")).to_contain_text("Live")
        await expect(at.row("mail", table="Queues")).to_be_visible()
        port = urlsplit(site.url).port or 0
        for one in (at, overview):
            one.excuse("ERR_", "401", "503")
        site.process.stop()
        await expect(overview.page.locator(".live")).to_contain_text("Reconnecting")
        await at.button("Refresh").click()
        await expect(at.page.get_by_role("alert").first).to_contain_text("may be old: The server cannot be reached.")
        await expect(at.row("mail", table="Queues")).to_be_visible()
        await at.button("Pause mail").click()
        await at.wait_for_message("The server cannot be reached.")
        await at.page.get_by_role("link", name="Runners", exact=True).click()
        await expect(at.page.get_by_role("heading", name="This could not be loaded")).to_be_visible()
        assert await at.violations() == []
    with serving(live.database, tmp_path, port=port, tokens=live.site.tokens):
        # Sessions are signed by the process that made them.
        await at.button("Try again").click()
        await expect(at.page.get_by_text("Your session has ended. Sign in again.")).to_be_visible()
        await at.page.get_by_label("Access token").fill(live.site.tokens[Role.OPERATOR])
        await at.button("Sign in").click()
        await at.title("Runners")


async def asked_to_sign_in(at: Visit) -> None:
    """Look again and again: the server does not look at a token that it knows for ten seconds."""
    ended = at.page.get_by_text("Your session has ended. Sign in again.")
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not await ended.is_visible():
            await at.page.keyboard.press("r")
            with suppress(AssertionError):
                await expect(ended).to_be_visible(timeout=300)


async def test_a_token_that_holds_no_more_ends_the_session(visit: Visiting, live: Live) -> None:
    texts = [
        holdfast("tokens", "make", name, "--role", "viewer", database=live.database).out.strip()
        for name in ("to be expired", "to be revoked")
    ]
    pages = [await visit(None, "queues") for _ in texts]
    for at, text in zip(pages, texts, strict=True):
        at.excuse("401")
        await at.page.get_by_label("Access token").fill(text)
        await at.button("Sign in").click()
        await at.title("Queues")
    expired, revoked = (Token.read(text) for text in texts)
    assert expired is not None
    assert revoked is not None
    live.conn.execute("UPDATE holdfast.access_token SET expires_at = now() WHERE key = %s", [expired.key])
    assert holdfast("tokens", "revoke", revoked.key, database=live.database).status == 0
    for at, text in zip(pages, texts, strict=True):
        await asked_to_sign_in(at)
        await at.page.get_by_label("Access token").fill(text)
        await at.button("Sign in").click()
        await expect(at.page.get_by_role("alert")).to_contain_text("it is wrong, expired or revoked")


async def test_there_is_no_such_page(visit: Visiting) -> None:
    at = await visit(path="nowhere")
    await expect(at.page.get_by_role("heading", name="There is no such page")).to_be_visible()
    await at.page.get_by_role("link", name="Go to the first page").click()
    await at.title("Overview")
