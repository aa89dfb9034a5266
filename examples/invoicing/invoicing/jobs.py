"""The jobs, the event, and the two runners.

`holdfast worker invoicing.jobs:app` runs them all. Every handler may run twice, and leaves the same as if it ran once.
"""

import os
from dataclasses import dataclass
from datetime import date, timedelta
from email.message import EmailMessage
from typing import Any

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Event, Every, Fail, Handle, Holdfast, Job, Limit, Reschedule, Unique

from .mail import invoice_message, reminder_message
from .pdf import html
from .services import Services, open_services
from .storage import Pdf, pdf_key
from .tables import Document, EmailDelivery, Invoice, InvoiceStatus, LedgerEntry, TaxSnapshot, load_invoice

# A browser is heavy: a worker renders two PDFs at once.
os.environ.setdefault("PDF_RENDER_CONCURRENCY", "2")

app = Holdfast(lifespan=open_services)


@dataclass(frozen=True)
class InvoiceIssued:
    invoice_id: int
    customer_id: int
    number: str
    total_cents: int
    currency: str


invoice_issued = app.event("invoice.issued", InvoiceIssued)


# Version 1 was written by the worker before this one, and spelled the argument `invoiceId`.
@app.job(
    "invoice.pdf.render.requested",
    queue="pdf",
    version=2,
    unique=Unique.by("invoice_id"),
    limits=[Limit(concurrency=2)],
    max_runtime=timedelta(minutes=2),
)
async def render_pdf(job: Job[Services], invoice_id: int) -> Pdf | Fail:
    """Render the PDF and store it under its key, unless that was done."""
    async with job.state.sessions() as session:
        invoice = await load_invoice(session, invoice_id)
    if invoice.document is not None and invoice.document.pdf is not None:
        return invoice.document.pdf
    if invoice.number is None:
        return Fail(f"invoice {invoice_id} is a draft", code="INVOICE_NOT_ISSUED")
    data = await job.state.printer.pdf(html(invoice, job.state.config.company))
    pdf = await job.state.storage.put(pdf_key(invoice_id, invoice.number), data)
    async with job.state.sessions.begin() as session:
        await session.execute(_document(invoice_id, job.chain_id, key=pdf.key, size=pdf.size))
        return await job.complete(session, pdf)


@render_pdf.upgrade(from_version=1)
def _render_pdf_from_version_1(payload: dict[str, Any]) -> dict[str, Any]:
    return {"invoice_id": payload["invoiceId"]}


async def request_pdf(session: AsyncSession, invoice_id: int) -> Handle[Pdf]:
    """Ask for the PDF, and record which chain renders it. If one does already, it is that one."""
    handle = await app.enqueue(session, render_pdf.new(invoice_id))
    await session.execute(_document(invoice_id, handle.chain_id))
    return handle


def _document(invoice_id: int, chain_id: int, **pdf: str | int) -> Insert:
    """Return the statement that writes the row of a document, whether it exists or not."""
    values = {"chain_id": chain_id, **pdf}
    row = insert(Document).values(invoice_id=invoice_id, **values)
    return row.on_conflict_do_update(index_elements=[Document.invoice_id], set_=values)


@app.job("invoice.email.requested", queue="mail", unique=Unique.by("invoice_id"))
async def send_invoice(job: Job[Services], invoice_id: int) -> Reschedule | None:
    """Mail an invoice with its PDF. The job is enqueued to run after the one that renders it."""
    async with job.state.sessions() as session:
        invoice = await load_invoice(session, invoice_id)
    if invoice.document is None or invoice.document.pdf is None:
        return Reschedule(timedelta(seconds=10))
    pdf = await job.state.storage.get(invoice.document.pdf.key)
    key = f"invoice:{invoice_id}"
    await _deliver(job, invoice, key, invoice_message(invoice, job.state.config, key, pdf))
    return None


@app.job("invoice.reminder.requested", queue="mail", unique=Unique.by("invoice_id", "day"))
async def send_reminder(job: Job[Services], invoice_id: int, day: date) -> None:
    """Mail a reminder, unless the invoice was paid meanwhile."""
    async with job.state.sessions() as session:
        invoice = await load_invoice(session, invoice_id)
    if invoice.status != InvoiceStatus.PAID:
        key = f"reminder:{invoice_id}:{day}"
        await _deliver(job, invoice, key, reminder_message(invoice, job.state.config, key))


async def _deliver(job: Job[Services], invoice: Invoice, key: str, message: EmailMessage) -> None:
    """Send a mail unless the delivery's record has it as sent.

    If the mail server accepts it and that is not recorded afterwards, the mail is sent again, with the same Message-ID:
    the worker died or was stopped, or the server's answer or the connection to the database was lost.
    """
    async with job.state.sessions.begin() as session:
        to = invoice.customer.email
        new = insert(EmailDelivery).values(idempotency_key=key, invoice_id=invoice.id, recipient=to)
        await session.execute(new.on_conflict_do_nothing())
        if (await session.get_one(EmailDelivery, key)).sent_at is not None:
            return
    await job.state.mailer.send(message)
    async with job.state.sessions.begin() as session:
        sent = update(EmailDelivery).where(EmailDelivery.idempotency_key == key).values(sent_at=func.now())
        await session.execute(sent)
        await job.complete(session, None)


@app.job("invoice.tax.snapshot.requested", unique=Unique.by("invoice_id"))
async def snapshot_taxes(job: Job[Services], invoice_id: int) -> None:
    """Write the taxes of an invoice, one row for each rate: a second run writes the same rows."""
    async with job.state.sessions.begin() as session:
        invoice = await load_invoice(session, invoice_id)
        rows = [
            {"invoice_id": invoice_id, "rate": tax.rate, "net_cents": tax.net.cents, "tax_cents": tax.tax.cents}
            for tax in invoice.taxes
        ]
        upsert = insert(TaxSnapshot).values(rows)
        new = {"net_cents": upsert.excluded.net_cents, "tax_cents": upsert.excluded.tax_cents}
        key = [TaxSnapshot.invoice_id, TaxSnapshot.rate]
        await session.execute(upsert.on_conflict_do_update(index_elements=key, set_=new))
        await job.complete(session, None)


@app.on(invoice_issued, name="ledger.book", start="beginning", ordered=True)
async def book(job: Job[Services], event: Event[InvoiceIssued]) -> None:
    """Book what the customer owes. Invoices of one customer are booked in the order in which they were issued."""
    issued = event.payload
    async with job.state.sessions.begin() as session:
        entry = insert(LedgerEntry).values(
            invoice_id=issued.invoice_id,
            customer_id=issued.customer_id,
            cents=issued.total_cents,
            currency=issued.currency,
        )
        await session.execute(entry.on_conflict_do_nothing())
        await job.complete(session, None)


# One replica at a time calls the API, which does the work: see internal.py.
app.http_runner("invoiceReminders", "/internal/invoice-reminders", every=Every(timedelta(minutes=15)))
app.http_runner("classesBilling", "/internal/classes-billing", every=Every(timedelta(hours=1)))
