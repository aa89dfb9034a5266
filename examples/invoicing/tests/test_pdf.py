"""Waiting for the PDF of an invoice: what it answers, what it costs, and when it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from examples.invoicing.invoicing.documents import longest_wait
from examples.invoicing.tests.site import API_ROLE, APP, EXAMPLE, issued
from tests.kit.commands import holdfast
from tests.kit.statement import MODES, Document

if TYPE_CHECKING:
    from examples.invoicing.tests.site import Office

pytestmark = pytest.mark.nightly

# For each request: who is signed in, and where the PDF is.
EACH = 2
# The statements that all who wait share come on top. They do not grow with their number.
SHARED = 40
COUNTED = f"SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE userid = '{API_ROLE}'::regrole"
ASKED = f"{COUNTED} AND query LIKE '%%LEFT OUTER JOIN document%%'"
WATCHED = "SELECT count(*) FROM holdfast.watcher WHERE until > now()"
RENDERED = """
    SELECT count(*), max(attempt) FROM holdfast.job_history
    WHERE kind = 'invoice.pdf.render.requested' AND (payload ->> 'invoice_id')::int = %s
"""
JOBS = "/api/settings/events/api/v1/jobs"
modes = Document(MODES)


@pytest.mark.parametrize(
    ("given", "pdfs"),
    [
        modes.case("PDF_RENDER_CONCURRENCY is 2 when it is not set: the application of the PDFs says so", {}, 2),
        modes.case("PDF_RENDER_CONCURRENCY wins over that", {"PDF_RENDER_CONCURRENCY": "5"}, 5),
    ],
)
def test_two_pdfs_are_rendered_at_once(given: dict[str, str], pdfs: int) -> None:
    output = holdfast("check", APP, "--json", database=None, cwd=EXAMPLE, **given)
    [found] = [each for each in output.json["settings"] if each["name"] == "HOLDFAST_QUEUE_CONCURRENCY"]
    assert found["value"] == f"pdf={pdfs}"


@modes.states("the wait endpoint renders nothing itself: it ensures that the render is enqueued, once")
@modes.states("the wait endpoint answers 200 with READY and a download address when the PDF is ready")
@modes.states("waiting for a PDF makes no tight loop of queries")
async def test_many_who_wait_for_one_invoice_cost_one_render(office: Office) -> None:
    site, waiters = office.site, 200
    async with site.user() as client:
        with office.paused("pdf"):
            invoice = await issued(client)
            path = f"/invoices/{invoice['id']}/pdf?waitMs=30000"
            before, asked = site.value(COUNTED), site.value(ASKED)
            waiting = [asyncio.create_task(client.get(path)) for _ in range(waiters)]
            await asyncio.to_thread(site.wait_for, ASKED, asked + waiters)
            await asyncio.to_thread(site.wait_for, WATCHED, 1)
            assert site.value(COUNTED) - before <= EACH * waiters + SHARED
            # They wait on, and cost what one of them would. A second is enough for a poll to show.
            before = site.value(COUNTED)
            await asyncio.sleep(1)
            assert site.value(COUNTED) - before <= SHARED
            assert not any(task.done() for task in waiting)
        answers = await asyncio.gather(*waiting)
        again = await client.get(path)
    assert {answer.status_code for answer in [*answers, again]} == {200}
    ready = again.json()
    assert (ready["status"], ready["invoiceId"]) == ("READY", invoice["id"])
    assert site.rows(RENDERED, invoice["id"]) == [(1, 1)]
    await _is_the_pdf_of(ready, invoice)


@modes.states("the wait endpoint answers 202 with PENDING, retryAfterMs and Retry-After when its time is up")
async def test_a_wait_that_is_too_short_is_answered_with_202(office: Office) -> None:
    site, waiters = office.site, 50
    async with site.user() as client:
        with office.paused("pdf"):
            invoice = await issued(client)
            path = f"/invoices/{invoice['id']}/pdf?waitMs=200"
            before = site.value(COUNTED)
            answers = await asyncio.gather(*(client.get(path) for _ in range(waiters)))
            assert site.value(COUNTED) - before <= EACH * waiters + SHARED, "those who give up cost no more"
            assert (await client.get(f"{path}.5")).status_code == 400, "422 has another meaning here"
    pending = {"status": "PENDING", "invoiceId": invoice["id"], "retryAfterMs": 2000}
    assert [(answer.status_code, answer.json()) for answer in answers] == [(202, pending)] * waiters
    assert {answer.headers["Retry-After"] for answer in answers} == {"2"}


@modes.states("waiting for a PDF stops when the client disconnects")
async def test_a_client_that_disconnects_frees_its_wait(office: Office) -> None:
    site = office.site
    async with site.user() as client:
        with office.paused("pdf"):
            invoice = await issued(client)
            waiting = asyncio.create_task(client.get(f"/invoices/{invoice['id']}/pdf?waitMs=30000"))
            await asyncio.to_thread(site.wait_for, WATCHED, 1)
            waiting.cancel()  # which closes the connection
            with suppress(asyncio.CancelledError):
                await waiting
            # Its record is removed at once, and not when the wait would have ended.
            async with asyncio.timeout(10):
                await asyncio.to_thread(site.wait_for, WATCHED, 0)


@modes.states("the wait endpoint answers 422 with INVOICE_PDF_RENDER_FAILED when the render has failed")
async def test_a_render_that_failed_is_answered_with_422_until_it_is_retried(office: Office) -> None:
    site, to = office.site, "failing@example.org"
    async with site.user() as client:
        with office.paused("pdf"):
            invoice = await issued(client, to=to)
            # No object can have this key.
            site.execute("UPDATE invoice SET number = '../' || number WHERE id = %s", invoice["id"])
        path = f"/invoices/{invoice['id']}/pdf?waitMs=30000"
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (422, "INVOICE_PDF_RENDER_FAILED")
        assert (await client.get(path)).status_code == 422, "the failure is remembered"
        # The mail comes after the PDF, so it fails too.
        await asyncio.to_thread(site.wait_for, "SELECT count(*) FROM holdfast.job_failed", 2)
        failed = (await client.get(JOBS, params={"status": "failed"})).json()["items"]
        assert {(job["kind"], job["error_code"]) for job in failed} >= {("invoice.email.requested", "blocker_failed")}
        site.execute("UPDATE invoice SET number = %s WHERE id = %s", invoice["number"], invoice["id"])
        retry = {"action": "retry", "filter": {"status": "failed"}, "preview": False}
        assert (await client.post(f"{JOBS}/actions", json=retry, headers={"X-Holdfast-Csrf": "1"})).json()["done"] == 2
        assert (await client.get(path)).status_code == 200, "the retry is waited for"
    await asyncio.to_thread(site.mailbox.wait_for, to)


@modes.states("waitMs is 15000 by default, and 30000 at most")
@pytest.mark.parametrize(("given", "seconds"), [(None, 15), (0, 0.001), (-5, 0.001), (20_000, 20), (90_000, 30)])
def test_the_time_of_a_wait_is_bounded(given: int | None, seconds: float) -> None:
    wait = longest_wait() if given is None else longest_wait(given)
    assert wait.total_seconds() == seconds


async def _is_the_pdf_of(ready: dict[str, Any], invoice: dict[str, Any]) -> None:
    """Download it as the customer would, who has no account."""
    async with httpx.AsyncClient(trust_env=False) as anyone:
        data = (await anyone.get(ready["downloadUrl"])).content
    assert data.startswith(b"%PDF-")
    assert len(data) == ready["size"]
    assert f"Invoice {invoice['number']}".encode() in data, "Chromium writes the title as it is"
