"""A page in a browser context of its own, and everything that goes wrong in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from playwright.async_api import expect

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Locator, Response

    from holdfast._ops.caller import Role
    from tests.browser.live import Site

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Visit:
    """Signed in by the API, if a role is given; at the end of its block nothing unexcused may have gone wrong."""

    def __init__(self, browser: Browser, site: Site, role: Role | None, **options: Any) -> None:
        self._browser = browser
        self._options = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
        self.site = site
        self.role = role
        self.trouble: list[str] = []
        self._excused: list[str] = []

    async def __aenter__(self) -> Self:
        self.context = await self._browser.new_context(**self._options)
        await self.context.add_init_script(_WATCH)
        if self.role is not None:
            await self.sign_in(self.site.tokens[self.role])
        self.page = await self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.trouble.append(f"uncaught: {error}"))
        self.page.on("response", self._response)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.context.close()
        if exc_type is None:
            self.check()

    async def sign_in(self, token: str) -> None:
        answer = await self.context.request.post(f"{self.site.url}api/v1/session", data={"token": token})
        assert answer.ok, await answer.text()

    async def go(self, path: str = "") -> None:
        await self.page.goto(f"{self.site.url}#/{path}")

    async def leave(self) -> None:
        """Leave nothing behind for the next who has this page."""
        await self.page.goto("about:blank")
        self.trouble.clear()
        self._excused.clear()

    def excuse(self, *parts: str) -> None:
        """Expect trouble that has one of these in its text."""
        self._excused += parts

    def check(self) -> None:
        found = [one for one in self.trouble if not any(part in one for part in self._excused)]
        assert not found, "\n".join(found)

    async def title(self, text: str) -> None:
        """Wait for a page."""
        await expect(self.page.get_by_role("heading", level=1, name=text, exact=True)).to_be_visible()

    def row(self, *texts: str, table: str | None = None) -> Locator:
        """Return the rows, of one table or of all, that have these texts."""
        rows = self.page.get_by_role("table", name=table, exact=True) if table else self.page
        found = rows.get_by_role("row")
        for text in texts:
            found = found.filter(has_text=text)
        return found

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    async def wait_for_message(self, text: str) -> None:
        """Wait for a message."""
        await expect(self.page.get_by_label("Messages").get_by_text(text)).to_be_visible()

    async def settled(self) -> None:
        """Wait until nothing on the page is being loaded."""
        await expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        await expect(self.page.locator("[aria-busy=true]")).to_have_count(0)

    async def violations(self) -> list[str]:
        """Return what axe finds against WCAG 2 A and AA."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']})", _RULES
        )
        return [
            f"{one['id']}: {one['help']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.trouble.append(f"{response.status}: {response.url}")
