"""Dead letters, grouped by error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_group_is_retried_once_and_completes(visit: Visiting, live: Live) -> None:
    live.fail("Other", [1])
    live.fail("Retried", [1, 2, 3])
    before = live.ended("card.charge")
    at = await visit(path="dead-letters")
    group = at.page.get_by_role("listitem", name="card.charge: RetriedOutage")
    await expect(group).to_contain_text("3jobs")
    await expect(group).to_contain_text("Retried: the bank does not answer")
    await at.button("Retry card.charge, RetriedOutage").click()
    await expect(at.dialog).to_contain_text("3 jobs to retry")
    await at.button("Retry 3 jobs").click()
    await at.wait_for_message("Retried 3 jobs.")
    live.until_ended("card.charge", before + 3)
    await expect(at.page.get_by_role("listitem", name="card.charge: OtherOutage")).to_be_visible()
    await expect(group).to_have_count(0)


async def test_a_group_leads_to_its_jobs(visit: Visiting, live: Live) -> None:
    live.fail("Listed", [1, 2])
    at = await visit(path="dead-letters?kind=card.charge")
    group = at.page.get_by_role("listitem", name="card.charge: ListedOutage")
    await group.get_by_role("link", name="Jobs").click()
    await at.title("Jobs")
    await expect(at.row("ListedOutage", table="Jobs")).to_have_count(2)
    await expect(at.page.get_by_label("Error code")).to_have_value("ListedOutage")


async def test_groups_are_narrowed_to_a_kind_and_a_time(visit: Visiting, live: Live) -> None:
    live.fail("Narrow", [1])
    at = await visit(path="dead-letters")
    group = at.page.get_by_role("listitem", name="card.charge: NarrowOutage")
    await expect(group).to_be_visible()
    await at.page.get_by_label("Kind", exact=True).fill("mail.send")
    await at.page.keyboard.press("Enter")
    await expect(at.page.get_by_role("heading", name="No dead letters")).to_be_visible()
    await at.page.get_by_label("Kind", exact=True).fill("card.charge")
    await at.page.keyboard.press("Enter")
    await expect(group).to_be_visible()


async def test_a_dismissed_group_comes_back_with_a_fresh_failure(visit: Visiting, live: Live) -> None:
    live.fail("Dismissed", [1, 2])
    at = await visit(path="dead-letters")
    group = at.page.get_by_role("listitem", name="card.charge: DismissedOutage")
    await at.button("Dismiss card.charge, DismissedOutage").click()
    await at.wait_for_message("card.charge, DismissedOutage: dismissed until a job of it fails again")
    await expect(group).to_have_count(0)
    await at.page.get_by_role("link", name="Show dismissed groups too").click()
    await expect(group).to_contain_text("dismissed by")
    await at.page.get_by_role("link", name="Hide dismissed groups").click()
    await expect(group).to_have_count(0)
    live.fail("Dismissed", [3])
    await at.button("Refresh").click()
    await expect(group).to_contain_text("3jobs")
