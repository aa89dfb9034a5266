"""One job: its story, and what can be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast import OrderKey
from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_dead_letter_tells_every_attempt_and_hides_what_is_secret(visit: Visiting, live: Live) -> None:
    (dead,) = live.fail("Story", [7])
    at = await visit(path=f"jobs/{dead}")
    story = at.page.get_by_label("What happened").get_by_role("listitem")
    await expect(story).to_have_count(3)
    await expect(story.nth(0)).to_contain_text("Enqueued")
    await expect(story.nth(1)).to_contain_text("Attempt 1 failed, and was tried again")
    await expect(story.nth(2)).to_contain_text("Attempt 2 failed for good")
    await expect(story.nth(2)).to_contain_text("StoryOutage")
    await expect(at.page.get_by_label("Error")).to_contain_text("the bank does not answer")
    payload = at.page.get_by_label("Payload", exact=True)
    await expect(payload).to_contain_text('"card_number": redacted')
    await expect(payload).not_to_contain_text("4111")
    await expect(at.page.get_by_label("Facts")).to_contain_text("2 of 2")


async def test_a_dead_letter_that_is_retried_runs_again(visit: Visiting, live: Live) -> None:
    (dead,) = live.fail("Again", [8])
    at = await visit(path=f"jobs/{dead}")
    await at.button("Retry…").click()
    await at.button("Retry 1 job").click()
    await at.wait_for_message("Retried 1 job.")
    await (
        at.page.get_by_label("What happened")
        .get_by_role("listitem")
        .filter(has_text="Run again")
        .get_by_role("link")
        .click()
    )
    await expect(at.page.get_by_label("What happened")).to_contain_text("Enqueued to run a dead letter again")
    await expect(at.page.locator(".job-line")).to_contain_text("completed")


async def test_a_waiting_job_is_cancelled(visit: Visiting, live: Live) -> None:
    (waits,) = live.wait(shop.send_sms.new("cancel me"))
    at = await visit(path=f"jobs/{waits}")
    await expect(at.button("Retry…")).to_have_attribute("aria-disabled", "true")
    await at.button("Cancel…").click()
    await at.button("Cancel 1 job").click()
    await at.wait_for_message("Cancelled 1 job.")
    await expect(at.page.locator(".job-line")).to_contain_text("cancelled")
    assert live.statuses([waits]) == ["cancelled"]


async def test_a_running_job_says_how_far_it_is_and_stops_when_it_is_cancelled(visit: Visiting, live: Live) -> None:
    (runs,) = live.enqueue(shop.build_report.new("endless"))
    live.until_all([runs], "processing")
    at = await visit(path=f"jobs/{runs}")
    await expect(at.page.get_by_label("What happened")).to_contain_text("chapter 1 of 10")
    await at.button("Cancel…").click()
    await at.button("Cancel 1 job").click()
    await at.wait_for_message("Cancelled 1 job.")
    await expect(at.page.locator(".job-line")).to_contain_text("cancelled")


async def test_a_waiting_job_is_deleted_and_gone(visit: Visiting, live: Live) -> None:
    (waits,) = live.wait(shop.send_sms.new("delete me"))
    at = await visit(path=f"jobs/{waits}")
    at.excuse("404")
    await at.button("Delete…").click()
    await at.button("Delete 1 job").click()
    await at.wait_for_message("Deleted 1 job.")
    await expect(at.page.get_by_text(f"There is no job {waits}")).to_be_visible()
    assert live.statuses([waits]) == ["gone"]


async def test_a_waiting_job_that_gets_another_time_runs_then(visit: Visiting, live: Live) -> None:
    (waits,) = live.wait(shop.send_sms.new("hurry"))
    at = await visit(path=f"jobs/{waits}")
    await at.button("Reschedule…").click()
    await at.button("In 1 h").click()
    await at.button("Reschedule 1 job").click()
    await at.wait_for_message("Rescheduled 1 job.")
    await expect(at.page.get_by_label("What happened")).to_contain_text("in 1")
    await at.button("Reschedule…").click()
    await at.button("Now").click()
    await at.button("Reschedule 1 job").click()
    await expect(at.page.locator(".job-line")).to_contain_text("completed")


async def test_an_unknown_job_is_reported(visit: Visiting) -> None:
    at = await visit(path="jobs/999999999")
    at.excuse("404")
    await expect(at.page.get_by_role("heading", name="Not found")).to_be_visible()


async def test_a_chain_is_drawn_and_its_jobs_are_links(visit: Visiting, live: Live) -> None:
    (chain,) = live.enqueue(shop.check_order.new(1))
    at = await visit(path=f"chains/{chain}")
    graph = at.page.get_by_label("Graph of the chain's jobs")
    await expect(graph.get_by_role("link", name="order.ship")).to_contain_text("completed")
    await graph.get_by_role("link", name="order.check").focus()
    await at.page.keyboard.press("ArrowRight")
    await expect(graph.get_by_role("link", name="order.charge")).to_be_focused()
    await at.page.get_by_role("radio", name="list").check(force=True)
    await expect(at.row("order.ship", table="Jobs of the chain")).to_contain_text("continues")
    await at.page.get_by_role("radio", name="graph").check(force=True)
    await graph.get_by_role("link", name="order.ship").click()
    await expect(at.page.get_by_role("region", name="Result")).to_contain_text("order 1 is on its way")


async def test_a_job_that_comes_after_others_shows_what_it_waits_for(visit: Visiting, live: Live) -> None:
    (report,) = live.enqueue(shop.build_report.new("in the way"))
    (waits,) = live.enqueue(shop.summarize.new("today").options(after=[report]))
    try:
        at = await visit(path=f"jobs/{waits}")
        await expect(at.page.locator(".job-line")).to_contain_text("blocked")
        story = at.page.get_by_label("What happened")
        await expect(story).to_contain_text("Waits for other chains")
        await story.get_by_role("link", name=f"Chain #{report}").click()
        graph = at.page.get_by_label("Graph of the chain's jobs")
        await expect(graph.get_by_role("link", name="orders.summarize")).to_contain_text("blocked")
        await at.go(f"chains/{waits}")
        await expect(graph.get_by_role("link", name="report.build")).to_be_visible()
    finally:
        live.cancel_all("report.build")


async def test_a_stopped_order_key_is_named_and_resumed_beside_its_dead_letter(visit: Visiting, live: Live) -> None:
    key = OrderKey("account 7", on_failure="block")
    with live.outage("Stopped"):
        (dead,) = live.enqueue(shop.charge_card.new(9, "Stopped").options(order_key=key))
        live.until_all([dead], "failed")
    (next_,) = live.enqueue(shop.charge_card.new(10, "Stopped").options(order_key=key))
    at = await visit()
    problem = at.page.get_by_label("Whether all is well").get_by_role("listitem").filter(has_text="account 7")
    await expect(problem).to_contain_text(f"The order key account 7 is stopped since job {dead}, card.charge, failed")
    await problem.get_by_role("link", name=f"Job #{dead}").click()
    await at.title(f"Job #{dead}")
    await at.button("Resume the key").click()
    await at.wait_for_message("account 7: goes on with its next job")
    live.until_all([next_], "completed")
    await at.go()
    await expect(problem).to_have_count(0)
