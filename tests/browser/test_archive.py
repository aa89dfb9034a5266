"""The archive: its page, an export under way, retention, and a job that is only in a file."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._archive.location import Location
from holdfast._ops.caller import Role
from tests.browser.live import serving
from tests.browser.past import Past, live_for_weeks, variables
from tests.browser.visit import Visit
from tests.kit.archive import History
from tests.kit.databases import clone
from tools.seaweedfs import REGION, SeaweedFS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

    from tests.browser.conftest import Visiting
    from tests.browser.live import Site
    from tools.postgres import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[SeaweedFS, Location]]:
    with SeaweedFS() as store:
        yield store, Location(f"shop-{secrets.token_hex(4)}/history", REGION, store.url)


@pytest.fixture(scope="module")
def past(server: Server, template: str, bucket: tuple[SeaweedFS, Location]) -> Iterator[Past]:
    with (
        pytest.MonkeyPatch.context() as patch,
        clone(server, template) as database,
        psycopg.connect(database, autocommit=True) as conn,
    ):
        for name, value in bucket[0].environment.items():
            patch.setenv(name, value)
        yield asyncio.run(live_for_weeks(History(database, conn, bucket[1])))


@pytest.fixture(scope="module")
def keeper(past: Past, bucket: tuple[SeaweedFS, Location], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that has the bucket."""
    store, location = bucket
    folder = tmp_path_factory.mktemp("keeper")
    with serving(past.history.url, folder, more=variables(store, location)) as site:
        yield site


async def test_the_page_shows_sources_days_and_the_next_drop(visit: Visiting, keeper: Site, past: Past) -> None:
    at = await visit(path="archive", site=keeper)
    await at.title("Archive")
    await expect(at.page.locator(".page-head")).to_contain_text(past.history.location.address)
    await expect(at.page.locator(".page-head")).to_contain_text("Next drop:")
    source = at.row("job_history", table="Sources")
    await expect(source).to_contain_text("completed and cancelled jobs")
    await expect(source).to_contain_text("1 in the archive only")
    await expect(at.row(past.left_day, "job_history", table="Days")).to_contain_text("in the archive only")
    await expect(at.row(past.kept_day, "job_history", table="Days")).to_contain_text("verified")
    await at.page.get_by_label("Source", exact=True).select_option("attempt")
    await expect(at.row("job_history", table="Days")).to_have_count(0)
    await expect(at.row(past.left_day, "attempt", table="Days")).to_be_visible()


async def test_a_running_export_moves_and_a_failed_one_has_its_error(visit: Visiting, keeper: Site, past: Past) -> None:
    async with past.exporting(rows_done=25, of=100) as export:
        at = await visit(path="archive", site=keeper)
        row = at.row(past.open_day, "job_history", table="Days")
        bar = row.get_by_role("progressbar")
        await expect(bar).to_have_attribute("value", "0.25")
        await expect(row).to_contain_text("exporting")
        await export.report(80)
        await expect(bar).to_have_attribute("value", "0.8")
        await export.fail("the bucket refused the file")
        await expect(row).to_contain_text("failed, tried again")
        await expect(row).to_contain_text("the bucket refused the file")
        await expect(bar).to_have_count(0)


async def test_an_operator_changes_the_retention_after_a_warning(visit: Visiting, keeper: Site, past: Past) -> None:
    at = await visit(path="archive", site=keeper)
    await at.button("Change run").click()
    await expect(at.dialog).to_contain_text("Now 30 days.")
    await at.dialog.get_by_label("Days").fill("20")
    await expect(at.dialog).to_contain_text("dropped from the database once they are verified")
    await at.dialog.get_by_label("Days").fill("60")
    await expect(at.dialog).not_to_contain_text("dropped from the database")
    await at.button("Keep 60 days").click()
    await at.wait_for_message("run: ended rows are kept for 60 days")
    await expect(at.row("run", table="Retention").first).to_contain_text("60")
    days = "SELECT extract(day FROM keep)::integer FROM holdfast.retention WHERE family = 'run'"
    assert past.history.value(days) == 60
    await at.go("audit")
    await expect(at.row("archive.retention", table="Audit").first).to_contain_text("run")


async def test_a_viewer_may_not_change_the_retention(visit: Visiting, keeper: Site) -> None:
    at = await visit(Role.VIEWER, "archive", site=keeper)
    await expect(at.button("Change run")).to_have_attribute("aria-disabled", "true")


async def test_a_job_that_has_left_is_found_by_its_id_and_read_from_its_file(
    visit: Visiting, keeper: Site, past: Past
) -> None:
    at = await visit(path="jobs", site=keeper)
    at.excuse("404")
    await at.page.get_by_text("More filters").click()
    await at.page.get_by_label("Open job by id").fill(str(past.left_job))
    await at.page.keyboard.press("Enter")
    await at.title(f"Job #{past.left_job}")
    await expect(at.page.get_by_role("heading", name="This job has left the database")).to_be_visible()
    await at.button("Look in the archive").focus()
    await at.page.keyboard.press("Enter")
    archived = at.page.get_by_role("region", name="Archived")
    await expect(archived).to_contain_text("archived")
    await expect(archived).to_contain_text(f"job_history/day={past.left_day}/1.parquet")
    await expect(at.page.get_by_label("What happened")).to_contain_text("mailbox full")
    await expect(at.page.get_by_role("region", name="Payload")).to_contain_text("partly redacted")
    await expect(at.button("Retry…")).to_have_count(0)
    # Its chain has left with it, and leads to the same file.
    await at.page.get_by_role("link", name=f"#{past.left_job}", exact=True).click()
    await at.title(f"Chain #{past.left_job}")
    await expect(at.page.get_by_role("heading", name="This chain has left the database")).to_be_visible()
    await at.button("Look in the archive").click()
    await expect(archived).to_contain_text(f"job_history/day={past.left_day}/1.parquet")


async def test_a_job_that_no_file_holds_is_not_found(visit: Visiting, keeper: Site, past: Past) -> None:
    at = await visit(path="jobs/999999999", site=keeper)
    at.excuse("404")
    await expect(at.page.get_by_role("heading", name="Not found")).to_be_visible()


async def test_without_a_bucket_the_page_says_that_it_is_off_and_what_to_set(visit: Visiting, empty: Site) -> None:
    at = await visit(Role.VIEWER, "archive", site=empty)
    await expect(at.page.get_by_role("heading", name="The archive is off")).to_be_visible()
    await expect(at.page.get_by_role("main")).to_contain_text("HOLDFAST_ARCHIVE_BUCKET")
    await expect(at.page.get_by_role("table", name="Sources")).to_have_count(0)


@pytest_asyncio.fixture(loop_scope="session", params=["light", "dark", "phone"])
async def looking(browser: Browser, keeper: Site, request: pytest.FixtureRequest) -> AsyncIterator[Visit]:
    phone = request.param == "phone"
    options = {"viewport": PHONE, "is_mobile": True} if phone else {"color_scheme": request.param}
    async with Visit(browser, keeper, Role.OPERATOR, **options) as at:
        yield at


async def test_axe_finds_nothing_and_nothing_is_too_wide(looking: Visit, past: Past) -> None:
    looking.excuse("404")
    async with past.exporting(rows_done=25, of=100):
        await looking.go("archive")
        await expect(looking.page.get_by_role("progressbar")).to_be_visible()
        await looking.settled()
        assert await looking.violations() == []
        await _check_width(looking)
        await looking.button("Change job_history").click()
        await looking.dialog.get_by_label("Days").fill("2")
        assert await looking.violations() == []
        await looking.page.keyboard.press("Escape")
    await looking.go(f"jobs/{past.left_job}")
    await looking.button("Look in the archive").click()
    await expect(looking.page.get_by_role("region", name="Archived")).to_be_visible()
    assert await looking.violations() == []
    await _check_width(looking)


async def _check_width(at: Visit) -> None:
    wide, fits = await at.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= fits
