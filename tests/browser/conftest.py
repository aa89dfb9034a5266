from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._ops.application import pages
from holdfast._ops.caller import Role
from tests.browser.live import Live, Site, Storefront, add_stream, opened, serving
from tests.browser.lobby import Lobby
from tests.browser.visit import AXE, Visit
from tests.kit.access import make_token
from tests.kit.chromium import chromium
from tests.kit.databases import clone
from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from playwright.async_api import Browser

    from tools.postgres import Server

    Visiting: TypeAlias = Callable[..., Awaitable[Visit]]

# Longer than anything here takes on a machine that is busy with something else.
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def live(server: Server, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with NatsServer(jetstream=True) as nats, clone(server, template) as database:
        asyncio.run(add_stream(nats))
        with opened(database, nats, tmp_path_factory.mktemp("shop")) as shop, Storefront(database, every=0.5):
            yield shop


@pytest.fixture(scope="session")
def empty(server: Server, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site in whose database nothing has ever happened."""
    with clone(server, template) as database:
        tokens = {Role.VIEWER: make_token(database, Role.VIEWER)}
        with serving(database, tmp_path_factory.mktemp("empty"), tokens=tokens) as site:
            yield site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if "/index.html" not in pages():
        pytest.fail("the dashboard is not built: npm --prefix dashboard ci && npm --prefix dashboard run build")
    if not AXE.is_file():
        pytest.fail("axe-core is missing: npm --prefix dashboard ci")
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lobby(browser: Browser) -> AsyncIterator[Lobby]:
    async with Lobby(browser) as lobby:
        yield lobby


@pytest_asyncio.fixture(loop_scope="session")
async def visit(lobby: Lobby, live: Live) -> AsyncIterator[Visiting]:
    """Open pages of the shop, or of another site, as a user of a role; none may have logged an error in the end.

    With options of a browser context, or `fresh`, it is a new page.
    """
    async with AsyncExitStack() as stack:

        async def open_page(role: Role | None = Role.OPERATOR, path: str = "", **options: Any) -> Visit:
            visit = await stack.enter_async_context(lobby.visit(options.pop("site", live.site), role, **options))
            await visit.go(path)
            return visit

        yield open_page
