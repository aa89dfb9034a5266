"""An invoice as HTML, and as a PDF by a headless Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from .tables import Invoice

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
# A page has nothing to load, so this is plenty.
_PAGE_MS = 30_000


def html(invoice: Invoice, company: str) -> str:
    """Return the page of an issued invoice. It needs no script, no font and no picture from anywhere."""
    return _TEMPLATES.get_template("invoice.html").render(invoice=invoice, company=company)


class Printer:
    """One browser for a process. It is started for the first page, so a process that renders nothing has none."""

    def __init__(self, program: str | None) -> None:
        self._program = program
        self._starting = asyncio.Lock()
        self._browser: Browser | None = None
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    async def pdf(self, page_html: str) -> bytes:
        """Return the page as a PDF."""
        browser = await self._started()
        # The texts of an invoice are escaped, and even if they were not, there is no script and no network.
        async with await browser.new_context(java_script_enabled=False, offline=True) as context:
            page = await context.new_page()
            page.set_default_timeout(_PAGE_MS)
            await page.set_content(page_html)
            return await page.pdf(format="A4", print_background=True)

    async def _started(self) -> Browser:
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():  # also if it crashed
                await self._ends.aclose()
                play = await self._ends.enter_async_context(async_playwright())
                program = self._program or next(filter(None, map(shutil.which, _PROGRAMS)), None)
                # Chromium's sandbox refuses to run as root.
                arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
                self._browser = await play.chromium.launch(executable_path=program, args=arguments)
                self._ends.push_async_callback(self._browser.close)
            return self._browser
