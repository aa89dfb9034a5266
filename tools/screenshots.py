"""Take the pictures of docs/how-to/dashboard.md: `python -m tools.screenshots`, all or those named: `job chain`.

The shop of the browser tests works meanwhile, with a worker process under load. Its past hour is made of jobs that the
worker really ran a moment before: only their times were moved back. The archive has a shop of its own, whose days are
exported to an object store. The page of several databases has a shop in two databases, and a third that is down.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from playwright.async_api import expect

from holdfast._archive.location import Location
from holdfast._ops.caller import Role
from tests.browser.fleet import Fleet, open_fleet, work
from tests.browser.live import Live, Site, add_stream, opened, serving
from tests.browser.past import Past, live_for_weeks, variables
from tests.browser.scene import BANK, get_into_trouble, go_on, live_an_hour, until_read
from tests.browser.visit import Visit
from tests.kit.archive import History
from tests.kit.chromium import chromium
from tests.kit.databases import clone, create_template
from tools.nats import NatsServer
from tools.picture import packed
from tools.postgres import Server
from tools.seaweedfs import REGION, SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.async_api import Browser

FOLDER = Path(__file__).parent.parent / "docs" / "screenshots"
THEMES = ("light", "dark")
SCREEN = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
LARGEST = 2_200_000
# A line is drawn of what waited since the page was opened: two seconds a point.
POINTS = 45
PATIENCE_MS = 300_000.0
PAGES = {
    "jobs": "jobs",
    "job": "jobs/{dead}",
    "running": "jobs/{running}",
    "preview": "jobs?kind=mail.send&status=pending",
    "chains": "chains",
    "chain": "chains/{chain}",
    "blocked": "chains/{blocked}",
    "dead-letters": "dead-letters",
    "queues": "queues",
    "workers": "workers",
    "runners": "runners",
    "runs": "runners/maintenance",
    "relays": "relays",
    "parked": "relays/to-nats",
    "audit": "audit",
}
ARCHIVE = ("archive", "archived")
FLEET = ("databases",)
_ACTIONS: tuple[tuple[Role, str, str, dict[str, Any]], ...] = (
    (Role.OPERATOR, "POST", "api/v1/queues/sms/actions", {"action": "pause"}),
    (Role.OPERATOR, "PUT", "api/v1/queues/pdf", {"concurrency": 6, "lease_ms": None, "rate": None}),
    (Role.DEVELOPER, "POST", "api/v1/runners/reports.monthly/actions", {"action": "pause"}),
    (Role.OPERATOR, "POST", "api/v1/subscriptions/ledger/actions", {"action": "replay", "after": "380"}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pages, as their files are called (default: all)")
    names = parser.parse_args().names
    if datetime.now(UTC).hour == 0:
        sys.exit("the past hour would be of yesterday, which has no partitions here: try again after 01:00 UTC")
    began = time.time()
    with Server(15) as server, tempfile.TemporaryDirectory() as folder:
        template = create_template(server)
        if not names or set(names) & set(ARCHIVE):
            _open_archive(server, template, Path(folder), names)
        if not names or set(names) & set(FLEET):
            _open_fleet(server, template, Path(folder))
        if not names or set(names) - {*ARCHIVE, *FLEET}:
            _open_shop(server, template, Path(folder), names)
    for path in FOLDER.glob("*.png"):
        if path.stat().st_mtime >= began:
            path.write_bytes(packed(path.read_bytes()))
    _report()


def _open_shop(server: Server, template: str, folder: Path, names: list[str]) -> None:
    with NatsServer(jetstream=True) as nats, clone(server, template) as database:
        asyncio.run(add_stream(nats))
        with opened(database, nats, folder) as live:
            live_an_hour(live)
            asyncio.run(_photograph(live, folder, names))


def _open_fleet(server: Server, template: str, folder: Path) -> None:
    with NatsServer(jetstream=True) as nats, Server(15) as stopped:
        asyncio.run(add_stream(nats))
        create_template(stopped)
        stopped.stop()
        with open_fleet(server, template, stopped, nats, folder) as fleet:
            work(fleet)
            asyncio.run(_photograph_fleet(fleet))


async def _photograph_fleet(fleet: Fleet) -> None:
    async with chromium() as browser:
        for theme in THEMES:
            options: dict[str, Any] = {"color_scheme": theme, "timezone_id": "UTC", "viewport": SCREEN}
            async with Visit(browser, fleet.site, Role.OPERATOR, **options) as visit:
                await visit.go()
                await expect(visit.row("asia", "not answering")).to_have_count(1)
                await _take(visit, f"databases-{theme}", "")


def _open_archive(server: Server, template: str, folder: Path, names: list[str]) -> None:
    with (
        SeaweedFS() as store,
        clone(server, template) as database,
        psycopg.connect(database, autocommit=True) as conn,
    ):
        os.environ.update(store.environment)
        history = History(database, conn, Location("shop/history", REGION, store.url))
        past = asyncio.run(live_for_weeks(history, kept_days=6))
        with serving(database, folder, more=variables(store, history.location)) as site:
            asyncio.run(_photograph_archive(site, past, names))


async def _photograph_archive(site: Site, past: Past, names: list[str]) -> None:
    async with chromium() as browser:
        for theme in THEMES:
            options: dict[str, Any] = {"color_scheme": theme, "timezone_id": "UTC", "viewport": SCREEN}
            async with Visit(browser, site, Role.OPERATOR, **options) as visit:
                visit.excuse("404")
                if not names or "archive" in names:
                    async with past.exporting(rows_done=62, of=100):
                        await _take(visit, f"archive-{theme}", "archive")
                if not names or "archived" in names:
                    await visit.go(f"jobs/{past.left_job}")
                    await visit.button("Look in the archive").click()
                    await visit.settled()
                    await expect(visit.page.get_by_role("region", name="Archived")).to_be_visible()
                    await _save(visit, f"archived-{theme}")


async def _photograph(live: Live, folder: Path, names: list[str]) -> None:
    expect.set_options(timeout=60_000)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ExitStack() as shop:
        async with AsyncExitStack() as stack:
            browser = await stack.enter_async_context(chromium())
            visits = {
                theme: await stack.enter_async_context(_visit(browser, live, theme, viewport=SCREEN))
                for theme in THEMES
            }
            go_on(live, shop)
            if not names or "overview" in names:
                await _take_overviews(visits, "overview")
            get_into_trouble(live, folder)
            await _act(visits[THEMES[0]], live)
            until_read(live)
            if not names or "problems" in names:
                await _take_overviews(visits, "problems")
            places = {name: path.format(**_known(live)) for name, path in PAGES.items() if not names or name in names}
            for theme, visit in visits.items():
                for name, path in places.items():
                    await _take(visit, f"{name}-{theme}", path)
                await _take_phones(browser, live, theme, names)
            await _take_login(browser, live, names)


def _visit(browser: Browser, live: Live, theme: str, *, role: Role | None = Role.OPERATOR, **options: Any) -> Visit:
    return Visit(browser, live.site, role, color_scheme=theme, timezone_id="UTC", **options)


async def _take_overviews(visits: Mapping[str, Visit], name: str) -> None:
    for visit in visits.values():
        await visit.go()
    for theme, visit in visits.items():
        drawn = "points => document.querySelector('[role=slider][aria-label^=Backlog]').ariaValueMax >= points"
        await visit.page.wait_for_function(drawn, arg=POINTS, timeout=PATIENCE_MS)
        await _save(visit, f"{name}-{theme}")


async def _take(visit: Visit, name: str, path: str) -> None:
    await visit.go(path)
    await visit.settled()
    if name.startswith("preview"):
        await visit.button("Cancel…").click()
        await expect(visit.dialog).to_contain_text("jobs to cancel")
    await _save(visit, name)
    if name.startswith("preview"):
        await visit.page.keyboard.press("Escape")
        await expect(visit.dialog).to_have_count(0)


async def _take_phones(browser: Browser, live: Live, theme: str, names: list[str]) -> None:
    wanted = {"phone-overview": "", "phone-job": f"jobs/{_known(live)['dead']}"}
    options: dict[str, Any] = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
    async with _visit(browser, live, theme, **options) as visit:
        for name, path in wanted.items():
            if not names or name in names:
                await _take(visit, f"{name}-{theme}", path)


async def _take_login(browser: Browser, live: Live, names: list[str]) -> None:
    for theme in THEMES if not names or "login" in names else ():
        async with _visit(browser, live, theme, role=None, viewport=SCREEN) as visit:
            visit.excuse("401")
            await _take(visit, f"login-{theme}", "")


async def _act(visit: Visit, live: Live) -> None:
    """Do a few things as people do, so that there is something to read in the audit."""
    (dead,) = live.conn.execute("SELECT max(id) FROM holdfast.job_failed").fetchone() or (0,)
    retry = (Role.OPERATOR, "POST", "api/v1/jobs/actions", {"action": "retry", "ids": [str(dead)], "preview": False})
    some = {"kind": "mail.send", "status": "pending", "text": "newsletter2"}
    cancel = {"action": "cancel", "filter": some, "preview": False, "limit": 1_000}
    for role, method, path, body in (retry, (Role.DEVELOPER, "POST", "api/v1/jobs/actions", cancel), *_ACTIONS):
        answer = await visit.context.request.fetch(
            f"{live.site.url}{path}",
            method=method,
            data=body,
            headers={"authorization": f"Bearer {live.site.tokens[role]}"},
        )
        assert answer.ok, await answer.text()


def _known(live: Live) -> dict[str, int]:
    """Return the ids of what is worth a picture."""
    queries = {
        "dead": f"SELECT min(id) FROM holdfast.job_failed WHERE last_error_code = '{BANK}Outage'",
        "running": "SELECT min(id) FROM holdfast.job WHERE kind = 'report.build' AND status = 'processing'",
        "blocked": "SELECT min(id) FROM holdfast.job WHERE kind = 'orders.summarize' AND status = 'blocked'",
        "chain": "SELECT chain_id FROM holdfast.job_history WHERE kind = 'order.ship' ORDER BY id DESC LIMIT 1",
    }
    found = {}
    for name, query in queries.items():
        row = live.conn.execute(query.encode()).fetchone()
        assert row is not None, name
        found[name] = int(row[0])
    return found


async def _save(visit: Visit, name: str) -> None:
    await visit.page.mouse.move(0, 0)
    await visit.page.screenshot(animations="disabled", path=FOLDER / f"{name}.png")
    print(name)


def _report() -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(FOLDER.glob("*.png"))}
    total = sum(sizes.values())
    print(f"{len(sizes)} pictures, {total / 1e6:.2f} MB")
    if total > LARGEST:
        sys.exit(f"they are larger than {LARGEST / 1e6:.1f} MB together")


if __name__ == "__main__":
    main()
