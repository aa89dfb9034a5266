"""Finding Chromium."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

# The first takes a quarter of the other's time: it has no windows to draw.
PROGRAMS = ("chromium-headless-shell", "chromium")
MISSING = f"Chromium is missing: install Debian's package {PROGRAMS[0]}, or {PROGRAMS[1]}, and fonts-dejavu-core"


def program() -> str:
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    raise RuntimeError(MISSING)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=program(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            await browser.close()
