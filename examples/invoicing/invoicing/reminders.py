"""Reminders of overdue invoices: one when an invoice is overdue, and then one each week."""

from datetime import date, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from .jobs import app, send_reminder
from .tables import Invoice, InvoiceStatus

AGAIN = timedelta(days=7)


async def remind(session: AsyncSession, today: date, limit: int) -> int:
    """Ask for the reminders that are due, and return how many. On one day an invoice has one at most.

    `key_share` locks the invoices against other reminders, but not against jobs that add rows which refer to them: an
    invoice whose PDF or mail is just being recorded would be skipped until the next call.
    """
    due = (
        select(Invoice)
        .where(Invoice.status == InvoiceStatus.ISSUED, Invoice.due_on < today)
        .where(Invoice.reminded_on.is_(None) | (Invoice.reminded_on <= today - AGAIN))
        .order_by(Invoice.due_on)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    )
    invoices = (await session.scalars(due)).all()
    for invoice in invoices:
        invoice.reminded_on = today
    await app.enqueue_many(session, [send_reminder.new(invoice.id, day=today) for invoice in invoices])
    return len(invoices)
