"""Looking for jobs, and acting on those that were found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast import OrderKey, Unique
from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live
    from tests.browser.visit import Visit

pytestmark = pytest.mark.asyncio(loop_scope="session")


def field_time(ahead: timedelta) -> str:
    """Return a moment as a field of the browser, whose zone is UTC, has it."""
    return (datetime.now(UTC) + ahead).strftime("%Y-%m-%dT%H:%M")


@pytest.fixture(scope="module")
def needle(live: Live) -> int:
    """A job that each filter finds."""
    job = shop.send_mail.new("needle@example.org").options(
        order_key=OrderKey("order needle"), unique=Unique("unique needle")
    )
    (made,) = live.wait(job)
    return made


@pytest.fixture(scope="module")
def dead_needle(live: Live) -> int:
    (made,) = live.fail("Needle", [1])
    return made


async def search(at: Visit, label: str, value: str) -> None:
    if label == "Status":
        await at.page.get_by_role("radio", name=value, exact=True).check(force=True)
        return
    more = at.page.get_by_label("Filters").locator("details")
    if await more.get_attribute("open") is None:
        await more.locator("summary").click()
    await at.page.get_by_label(label, exact=True).fill(value)
    await at.button("Search").click()


@pytest.mark.parametrize(
    ("label", "found", "missed"),
    [
        ("Status", "pending", "completed"),
        ("Kind", "mail.send", "sms.send"),
        ("Queue", "mail", "sms"),
        ("Text in payload", "NEEDLE@", "thread@"),
        ("Order key", "order needle", "order"),
        ("Unique key", "unique needle", "unique"),
        ("Created from", timedelta(hours=-1), timedelta(hours=1)),
        ("Created until", timedelta(hours=1), timedelta(hours=-1)),
    ],
)
async def test_each_filter_finds_what_matches_and_nothing_else(
    visit: Visiting, needle: int, label: str, found: str | timedelta, missed: str | timedelta
) -> None:
    beside = "unique_key=unique%20needle" if label == "Text in payload" else "text=needle%40"
    at = await visit(path=f"jobs?{beside}", timezone_id="UTC")
    only = at.page.get_by_role("table", name="Jobs").get_by_role("row").filter(has_text=f"#{needle}")
    await expect(only).to_have_count(1)
    for value, hit in ((missed, False), (found, True)):
        await search(at, label, field_time(value) if isinstance(value, timedelta) else value)
        if hit:
            await expect(only).to_have_count(1)
            await expect(at.page.get_by_role("table", name="Jobs").get_by_role("row")).to_have_count(2)
        else:
            await expect(at.page.get_by_role("heading", name="No such jobs")).to_be_visible()
    await expect(at.page.get_by_text("That is all.")).to_be_visible()


async def test_dead_letters_are_found_by_their_error_code(visit: Visiting, dead_needle: int) -> None:
    at = await visit(path="jobs")
    await search(at, "Error code", "NeedleOutage")
    rows = at.page.get_by_role("table", name="Jobs").get_by_role("row")
    await expect(rows).to_have_count(2)
    await expect(rows.last).to_contain_text(f"#{dead_needle}")
    await expect(rows.last).to_contain_text("NeedleOutage")
    await at.page.reload()  # the address has the search
    await expect(rows).to_have_count(2)


async def test_one_looks_further_page_by_page_to_the_end(visit: Visiting, live: Live) -> None:
    live.wait(*(shop.send_sms.new(f"paged-{number}") for number in range(120)))
    at = await visit(path="jobs?text=paged-")
    rows = at.page.get_by_role("table", name="Jobs").locator("tbody tr")
    await expect(rows).to_have_count(50)
    for number in (100, 120):
        await at.button("Look further").click()
        await expect(rows).to_have_count(number)
    await expect(at.page.get_by_text("That is all.")).to_be_visible()
    await expect(at.button("Look further")).to_have_count(0)


async def test_a_job_is_opened_by_its_id(visit: Visiting, needle: int) -> None:
    at = await visit(path="jobs")
    await at.page.get_by_text("More filters").click()
    await at.page.get_by_label("Open job by id").fill(f"#{needle}")
    await at.button("Open").click()
    await at.title(f"Job #{needle}")


async def test_all_that_match_are_shown_before_they_are_cancelled(visit: Visiting, live: Live) -> None:
    ids = live.wait(*(shop.send_sms.new(f"bulk-{number}") for number in range(12)))
    at = await visit(path="jobs?text=bulk-&status=pending")
    await expect(at.row("sms.send", table="Jobs")).to_have_count(12)
    await at.button("Cancel…").click()
    await expect(at.dialog).to_contain_text("12 jobs to cancel")
    await expect(at.dialog.get_by_role("table").locator("tbody tr")).to_have_count(12)
    assert set(live.statuses(ids)) == {"pending"}
    await at.button("Cancel 12 jobs").click()
    await at.wait_for_message("Cancelled 12 jobs.")
    await expect(at.dialog).to_have_count(0)
    await expect(at.page.get_by_role("heading", name="No such jobs")).to_be_visible()
    assert set(live.statuses(ids)) == {"cancelled"}


async def test_a_preview_that_is_closed_does_nothing(visit: Visiting, live: Live) -> None:
    ids = live.wait(shop.send_sms.new("spared-1"), shop.send_sms.new("spared-2"))
    at = await visit(path="jobs?text=spared-")
    await at.button("Delete…").click()
    await expect(at.dialog).to_contain_text("2 jobs to delete")
    await at.page.keyboard.press("Escape")
    await expect(at.dialog).to_have_count(0)
    assert live.statuses(ids) == ["pending", "pending"]


async def test_chosen_jobs_are_deleted_and_the_others_stay(visit: Visiting, live: Live) -> None:
    ids = live.wait(*(shop.send_sms.new(f"chosen-{number}") for number in range(4)))
    at = await visit(path="jobs?text=chosen-")
    await at.page.get_by_label(f"Choose job {ids[2]}").click()
    await at.page.get_by_label(f"Choose job {ids[0]}").click(modifiers=["Shift"])
    await expect(at.page.get_by_label("Actions").get_by_role("status")).to_have_text("3 jobs chosen")
    await at.button("Delete…").click()
    await at.button("Delete 3 jobs").click()
    await at.wait_for_message("Deleted 3 jobs.")
    await expect(at.row("sms.send", table="Jobs")).to_have_count(1)
    assert live.statuses(ids) == ["gone", "gone", "gone", "pending"]


async def test_impossible_actions_on_a_job_are_reported(visit: Visiting, live: Live) -> None:
    (ended,) = live.enqueue(shop.send_sms.new("ended-1"))
    live.until_all([ended], "completed")
    (waits,) = live.wait(shop.send_sms.new("ended-2"))
    at = await visit(path="jobs?text=ended-")
    await at.page.get_by_label("Choose all shown").click()
    await at.button("Cancel…").click()
    await expect(at.dialog).to_contain_text("1 job will be left alone")
    await at.button("Cancel 1 job").click()
    await at.wait_for_message("Cancelled 1 job. 1 job was refused.")
    await expect(at.dialog).to_contain_text(f"#{ended} it has ended")
    assert live.statuses([ended, waits]) == ["completed", "cancelled"]


async def test_an_empty_filter_acts_on_nothing(visit: Visiting) -> None:
    at = await visit(path="jobs")
    await expect(at.button("Cancel…")).to_have_attribute("aria-disabled", "true")
    await at.button("Cancel…").click(force=True)
    await at.wait_for_message("An empty filter would act on everything")
    await expect(at.dialog).to_have_count(0)
