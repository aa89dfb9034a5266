"""Chromium, found or installed."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from playwright.async_api import async_playwright

from tools.broker import provide

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

# The first takes a quarter of the other's time: it has no windows to draw.
PROGRAMS = ("chromium-headless-shell", "chromium")
PACKAGES = f"{PROGRAMS[0]} fonts-dejavu-core"


def program() -> str:
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    return str(provide(PROGRAMS[0], PACKAGES, f"apt-get install {PACKAGES}"))


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=program(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            await browser.close()
