"""Ask the search of the built site what readers ask: the right page must be the first answer.

python -m tools.site.search       print each question whose first answer is another page; the exit status is 1 then
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.kit.chromium import chromium
from tools.site.check import SITE

if TYPE_CHECKING:
    from playwright.async_api import Page

PATIENCE_MS = 60_000.0
# A question, and the pages that answer it.
QUESTIONS = {
    "rate limit": ("how-to/limits.html",),
    "k8s": ("how-to/deploy.html",),
    "kubernetes": ("how-to/deploy.html",),
    "upgrade": ("how-to/zero-downtime-deploys.html",),
    "scale": ("explanation/scale.html",),
    "cost": ("explanation/evidence.html",),
    "retry": ("how-to/retries.html",),
    "exactly once": ("explanation/effects.html",),
    "celery": ("how-to/move-from-celery.html",),
    "cron": ("how-to/schedules.html",),
    "logs": ("how-to/logging.html",),
}


async def wrong() -> list[str]:
    """Return each question with its first answer, where that is none of its pages."""
    found = []
    async with chromium() as browser:
        page = await browser.new_page()
        for question, pages in QUESTIONS.items():
            answer = await _first(page, question)
            if answer.partition("#")[0] not in pages:
                found.append(f"{question}: {answer}, and not {' or '.join(pages)}")
    return found


async def _first(page: Page, question: str) -> str:
    await page.goto((SITE / "index.html").as_uri(), timeout=PATIENCE_MS)
    await page.focus(".md-search__input")
    await page.get_by_text("Type to start searching").wait_for(state="attached", timeout=PATIENCE_MS)
    # The search listens to keys: all of the question is there when the only one is pressed.
    await page.fill(".md-search__input", question[:-1])
    await page.keyboard.press(question[-1])
    await page.get_by_text("matching document").wait_for(state="attached", timeout=PATIENCE_MS)
    first = page.locator(".md-search-result__link").first
    address = await first.get_attribute("href") or "" if await first.count() else "nothing"
    return address.partition("?")[0].removeprefix(f"{SITE.as_uri()}/")


if __name__ == "__main__":
    if not (SITE / "index.html").is_file():
        sys.exit("there is no built site: run make docs")
    print("\n".join(places := asyncio.run(wrong())), end="\n" if places else "")
    sys.exit(bool(places))
