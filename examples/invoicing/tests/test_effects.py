"""A job that runs twice, and what it leaves behind."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from obstore.store import S3Store

from examples.invoicing.tests.site import issued
from tests.kit.statement import MODES, Document

if TYPE_CHECKING:
    from email.message import EmailMessage

    from examples.invoicing.tests.site import Office, Site

ENDED = """
    SELECT count(*) FROM holdfast.job_history
    WHERE %s IN (payload ->> 'invoice_id', payload -> 'event' -> 'payload' ->> 'invoice_id')
"""
SENT = "SELECT count(*), count(sent_at) FROM email_delivery WHERE invoice_id = %s"
AGAIN = """
    SELECT holdfast.enqueue(%s, json_build_object('invoice_id', %s::int), queue => %s, payload_version => %s)
"""
PUBLISH_AGAIN = """
    SELECT holdfast.publish(topic, payload, key => key) FROM holdfast.event
    WHERE (payload ->> 'invoice_id')::int = %s
"""
KINDS = [
    ("invoice.pdf.render.requested", "pdf", 2),
    ("invoice.email.requested", "mail", 1),
    ("invoice.tax.snapshot.requested", "default", 1),
]

modes = Document(MODES)


@modes.states("an invoice's mail is sent once: a delivery record, an idempotency key, and no second sending")
@modes.states("an invoice's PDF has one storage key, and is not rendered again when it is ready")
@modes.states("the tax snapshot is an upsert by its natural key")
async def test_a_job_that_runs_twice_leaves_what_one_run_leaves(office: Office) -> None:
    site, to = office.site, "twice@example.org"
    async with site.user() as client:
        invoice = await issued(client, to=to)
    ended = ENDED, 4, str(invoice["id"])
    await asyncio.to_thread(site.wait_for, *ended)
    before = _left(site, invoice["id"])
    for kind, queue, version in KINDS:
        site.execute(AGAIN, kind, invoice["id"], queue, version)
    site.execute(PUBLISH_AGAIN, invoice["id"])
    await asyncio.to_thread(site.wait_for, ENDED, 8, str(invoice["id"]))
    assert _left(site, invoice["id"]) == before
    [mail] = site.mailbox.to(to)
    [pdf] = mail.iter_attachments()
    assert pdf.get_filename() == f"{invoice['number']}.pdf"
    assert pdf.get_content().startswith(b"%PDF-")


@pytest.mark.nightly
async def test_a_worker_that_dies_between_sending_and_recording_sends_again_with_the_same_id(office: Office) -> None:
    """Delivery is at least once, since a mail server cannot be asked whether it has a mail."""
    site, to, worker = office.site, "killed@example.org", office.worker

    def kill(mail: EmailMessage) -> None:
        if mail["to"] == to:
            worker.signal(signal.SIGKILL)
            worker.process.wait()

    site.mailbox.before_answer = kill
    async with site.user() as client:
        invoice = await issued(client, to=to)
    assert await asyncio.to_thread(worker.ended) == -signal.SIGKILL
    assert site.rows(SENT, invoice["id"]) == [(1, 0)]
    office.reset()
    first, second = await asyncio.to_thread(site.mailbox.wait_for, to, 2)
    await asyncio.to_thread(site.wait_for, ENDED, 4, str(invoice["id"]))
    assert first["message-id"] == second["message-id"]
    assert site.rows(SENT, invoice["id"]) == [(1, 1)]


@pytest.mark.nightly
async def test_a_mail_whose_answer_is_lost_is_sent_again_with_the_same_id(office: Office) -> None:
    site, to = office.site, "unanswered@example.org"
    site.mailbox.unanswered.add(to)
    async with site.user() as client:
        invoice = await issued(client, to=to)
    first, second = await asyncio.to_thread(site.mailbox.wait_for, to, 2)
    await asyncio.to_thread(site.wait_for, ENDED, 4, str(invoice["id"]))
    assert first["message-id"] == second["message-id"]
    assert site.rows(SENT, invoice["id"]) == [(1, 1)]


def _left(site: Site, invoice_id: int) -> list[object]:
    """Return all rows and objects of an invoice."""
    tables = ("document", "email_delivery", "tax_snapshot", "ledger_entry")
    rows = [site.rows(f"SELECT * FROM {table} WHERE invoice_id = %s", invoice_id) for table in tables]
    variables = site.variables
    store = S3Store(
        variables["INVOICE_BUCKET"],
        config={
            "endpoint": variables["INVOICE_STORE_ENDPOINT"],
            "access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        },
        client_options={"allow_http": True},
    )
    objects = [found["path"] for page in store.list(f"invoices/{invoice_id}/") for found in page]
    assert len(objects) == 1
    return [*rows, objects]
