"""Classes of past months as invoices: one for each customer, month and currency."""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal

from sqlalchemy import Date, Row, Select, cast, exists, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from .invoices import issue
from .tables import Attendance, Invoice, InvoiceLine, MusicClass, load_invoice

# The rest of a customer who attended more often is billed a month later.
MOST_LESSONS = 1_000


def last_month(today: date) -> date:
    """Return the first day of the month before."""
    return (today.replace(day=1) - timedelta(days=1)).replace(day=1)


async def unbilled(session: AsyncSession, today: date, limit: int) -> Sequence[Row[int, str]]:
    """Return customers, with a currency, whose classes up to the end of last month are not billed yet.

    A lesson that was recorded too late for the invoice of its month is on the next one.
    """
    has_invoice = exists().where(
        Invoice.customer_id == Attendance.customer_id,
        Invoice.billed_month == last_month(today),
        Invoice.currency == MusicClass.currency,
    )
    found = (
        select(Attendance.customer_id, MusicClass.currency)
        .join(MusicClass)
        .where(Attendance.invoice_id.is_(None), Attendance.attended_on < today.replace(day=1), ~has_invoice)
        .distinct()
        .limit(limit)
    )
    return (await session.execute(found)).all()


async def bill(session: AsyncSession, customer_id: int, currency: str, today: date) -> bool:
    """Write and issue the invoice of a customer for last month. Return False if that was done meanwhile."""
    new = insert(Invoice).values(customer_id=customer_id, currency=currency, billed_month=last_month(today))
    # A second transaction that bills the same month waits here for the first, and then does nothing.
    invoice_id = (await session.execute(new.on_conflict_do_nothing().returning(Invoice.id))).scalar_one_or_none()
    if invoice_id is None:
        return False
    key = tuple_(Attendance.class_id, Attendance.customer_id, Attendance.attended_on)
    billed = update(Attendance).where(key.in_(_lessons(customer_id, currency, today))).values(invoice_id=invoice_id)
    await session.execute(billed)
    month = cast(func.date_trunc("month", Attendance.attended_on), Date).label("month")
    counts = (
        select(MusicClass, month, func.count())
        .join(Attendance)
        .where(Attendance.invoice_id == invoice_id)
        .group_by(MusicClass.id, "month")
        .order_by("month", MusicClass.id)
    )
    for position, (music_class, attended_in, lessons) in enumerate((await session.execute(counts)).tuples(), 1):
        line = InvoiceLine(
            invoice_id=invoice_id,
            position=position,
            description=f"{music_class.name}, {attended_in:%B %Y}",
            quantity=Decimal(lessons),
            unit_cents=music_class.lesson_cents,
            tax_rate=music_class.tax_rate,
        )
        session.add(line)
    await session.flush()
    await issue(session, await load_invoice(session, invoice_id), today)
    return True


def _lessons(customer_id: int, currency: str, today: date) -> Select[int, int, date]:
    return (
        select(Attendance.class_id, Attendance.customer_id, Attendance.attended_on)
        .join(MusicClass)
        .where(
            Attendance.customer_id == customer_id,
            Attendance.invoice_id.is_(None),
            Attendance.attended_on < today.replace(day=1),
            MusicClass.currency == currency,
        )
        .order_by(Attendance.attended_on)
        .limit(MOST_LESSONS)
    )
