"""Pages that wait to be used again: opening one takes longer than most tests."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from tests.browser.visit import Visit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from holdfast._ops.caller import Role
    from tests.browser.live import Site


class Lobby:
    """Lends pages; closes them all at the end of its block."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[tuple[str, Role], list[Visit]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def visit(
        self, site: Site, role: Role | None, *, fresh: bool = False, **options: Any
    ) -> AsyncIterator[Visit]:
        """Yield a page of a user; with options or without a user, a new page."""
        if fresh or options or role is None:
            async with Visit(self._browser, site, role, **options) as visit:
                yield visit
            return
        free = self._free.setdefault((site.url, role), [])
        visit = free.pop() if free else await self._stack.enter_async_context(Visit(self._browser, site, role))
        yield visit
        try:
            visit.check()
            free.append(visit)
        finally:
            await visit.leave()
