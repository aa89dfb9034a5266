"""The page of several databases: one of them does not answer, and the others are shown as ever."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser.fleet import Fleet, open_fleet, work
from tests.browser.live import add_stream
from tests.browser.visit import Visit
from tests.kit.databases import create_template
from tools.nats import NatsServer
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def fleet(
    server: Server, template: str, server_version: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    with NatsServer(jetstream=True) as nats, Server(server_version) as stopped:
        asyncio.run(add_stream(nats))
        create_template(stopped)
        stopped.stop()
        with open_fleet(server, template, stopped, nats, tmp_path_factory.mktemp("fleet")) as opened:
            work(opened)
            yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def at(browser: Browser, fleet: Fleet) -> AsyncIterator[Visit]:
    async with Visit(browser, fleet.site, Role.OPERATOR) as visit:
        await visit.go()
        await visit.title("Databases")
        await visit.settled()
        yield visit


async def test_each_database_has_its_figures(at: Visit) -> None:
    eu, us = at.row("eu", "serving", table="Databases"), at.row("us", "draining", table="Databases")
    await expect(eu.locator("[data-label=Due]")).to_have_text("14")
    await expect(eu.locator("[data-label=Unfinished]")).to_have_text("15")
    await expect(us.locator("[data-label^=Failed]")).to_have_text("3")
    for line in (eu, us):
        await expect(line.locator("[data-label=Workers]")).to_have_text("1")
    silent = at.row("asia", "not answering", table="Databases")
    await expect(silent).to_contain_text(re.compile("cannot be reached|has not answered"))
    tiles = at.page.locator(".tiles")
    await expect(tiles).to_contain_text("2 of 3")
    await expect(tiles).to_contain_text("1 database not answering")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing(browser: Browser, fleet: Fleet, theme: Any) -> None:
    async with Visit(browser, fleet.site, Role.VIEWER, color_scheme=theme) as visit:
        await visit.go()
        await visit.title("Databases")
        await expect(visit.row("asia", "not answering")).to_have_count(1)
        await visit.settled()
        assert await visit.violations() == []


async def test_it_fits_into_the_width_of_a_phone(browser: Browser, fleet: Fleet) -> None:
    async with Visit(browser, fleet.site, Role.VIEWER, viewport=PHONE, is_mobile=True, has_touch=True) as visit:
        await visit.go()
        await visit.title("Databases")
        await expect(visit.row("asia", "not answering")).to_have_count(1)
        await visit.settled()
        assert not await visit.page.evaluate(WIDER)
        assert await visit.violations() == []


async def test_one_that_answers_again_is_shown_as_serving(at: Visit, fleet: Fleet) -> None:
    await expect(at.row("asia", "not answering")).to_have_count(1)
    await asyncio.to_thread(fleet.stopped.start)
    try:
        await expect(at.row("asia", "serving", table="Databases")).to_have_count(1)
        await expect(at.page.locator(".tiles")).to_contain_text("3 of 3")
    finally:
        await asyncio.to_thread(fleet.stopped.stop)
    # What it last answered stays, and it is said to be old.
    await expect(at.row("asia", "not answering")).to_contain_text("Shown as of")
