"""Take the pictures of the documentation site: `python -m tools.site.screenshots`, after `make docs`.

The start page and one page of each part, light and dark, and three of them at a phone's width, into site/pictures.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.kit.chromium import chromium
from tools.picture import packed
from tools.site.check import SITE

if TYPE_CHECKING:
    from playwright.async_api import Browser, Request

FOLDER = SITE / "pictures"
THEMES = ("light", "dark")
SCREEN = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 740}
PATIENCE_MS = 300_000.0
PAGES = {
    "start": "index.html",
    "tutorial": "tutorials/first-job.html",
    "how-to": "how-to/enqueueing.html",
    "explanation": "explanation/lifecycle.html",
    "reference": "reference/api/holdfast.html",
}
ON_A_PHONE = {
    "phone-start": "index.html",
    "phone-how-to": "how-to/enqueueing.html",
    "phone-explanation": "explanation/lifecycle.html",
}


async def main() -> None:
    """Take them all. Fail if a page asks for anything that is not in the site."""
    if not (SITE / "index.html").is_file():
        sys.exit("there is no built site: run make docs")
    FOLDER.mkdir(exist_ok=True)
    async with chromium() as browser:
        for theme in THEMES:
            for name, page in PAGES.items():
                await _take(browser, f"site-{name}-{theme}", page, theme, SCREEN)
            for name, page in ON_A_PHONE.items():
                await _take(browser, f"site-{name}-{theme}", page, theme, PHONE)


async def _take(browser: Browser, name: str, page: str, theme: str, size: dict[str, int]) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            asked.append(request.url)

    context = await browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    view = await context.new_page()
    view.on("request", note)
    await view.goto((SITE / page).as_uri(), timeout=PATIENCE_MS)
    # The script of the diagrams replaces each text by its drawing.
    await view.wait_for_function("document.querySelector('pre.mermaid') === null", timeout=PATIENCE_MS)
    picture = await view.screenshot()
    wide = await view.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    await context.close()
    if asked:
        sys.exit(f"{page} asks for {asked}")
    if wide:
        sys.exit(f"{page} is wider than a window of {size['width']} pixels")
    (FOLDER / f"{name}.png").write_bytes(packed(picture))


if __name__ == "__main__":
    asyncio.run(main())
