"""Invoices: drafted, issued, paid."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, HTTPException
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import NoResultFound
from sqlalchemy.ext.asyncio import AsyncSession

from .api import Amount, Body, Id, Line, Percent, Shared
from .config import Config
from .jobs import InvoiceIssued, app, invoice_issued, request_pdf, send_invoice, snapshot_taxes
from .money import Currency, Money
from .tables import Customer, Invoice, InvoiceLine, InvoiceNumber, InvoiceStatus, load_invoice
from .users import Office

DUE = timedelta(days=14)

router = APIRouter(prefix="/invoices", tags=["invoices"], dependencies=[Office])


class LineBody(Body):
    description: Line
    quantity: Annotated[Decimal, Field(gt=0, max_digits=7, decimal_places=2)] = Decimal(1)
    unit_price: Amount
    tax_rate: Percent = Decimal(19)


class NewInvoice(Body):
    customer_id: Id
    currency: Currency = "EUR"
    lines: Annotated[list[LineBody], Field(min_length=1, max_length=100)]


class InvoiceBody(Body):
    id: int
    customer_id: int
    currency: str
    lines: list[LineBody]
    status: InvoiceStatus
    number: str | None
    issued_on: date | None
    due_on: date | None
    total: Decimal


async def issue(session: AsyncSession, invoice: Invoice, today: date) -> None:
    """Issue a draft: number it, tell those who subscribe, and ask for its PDF, its mail and its tax snapshot.

    All of it is in the caller's transaction. If that rolls back, there is no number, no event and no job.
    """
    invoice.number = number = await _next_number(session, today.year)
    invoice.status, invoice.issued_on, invoice.due_on = InvoiceStatus.ISSUED, today, today + DUE
    await session.flush()
    total = invoice.total
    event = InvoiceIssued(invoice.id, invoice.customer_id, number, total.cents, total.currency)
    await app.publish(session, invoice_issued.new(event, key=str(invoice.customer_id)))
    pdf = await request_pdf(session, invoice.id)
    await app.enqueue(session, send_invoice.new(invoice.id).options(after=[pdf]))
    await app.enqueue(session, snapshot_taxes.new(invoice.id))


def today_of(config: Config) -> date:
    return datetime.now(config.time_zone).date()


@router.post("", status_code=201)
async def draft_invoice(new: NewInvoice, services: Shared) -> InvoiceBody:
    async with services.sessions.begin() as session:
        if await session.get(Customer, new.customer_id) is None:
            raise HTTPException(404, "there is no such customer")
        invoice = Invoice(customer_id=new.customer_id, currency=new.currency)
        invoice.lines = [
            InvoiceLine(
                position=position,
                description=line.description,
                quantity=line.quantity,
                unit_cents=Money.of(line.unit_price, new.currency).cents,
                tax_rate=line.tax_rate,
            )
            for position, line in enumerate(new.lines, 1)
        ]
        session.add(invoice)
    return _body(invoice)


@router.get("/{invoice_id}")
async def show_invoice(invoice_id: Id, services: Shared) -> InvoiceBody:
    async with services.sessions() as session:
        return _body(await _found(session, invoice_id))


@router.post("/{invoice_id}/issue")
async def issue_invoice(invoice_id: Id, services: Shared) -> InvoiceBody:
    """Issue a draft. An invoice that was issued before is answered as it is, so a request may be repeated."""
    async with services.sessions.begin() as session:
        await session.execute(select(Invoice.id).where(Invoice.id == invoice_id).with_for_update())
        invoice = await _found(session, invoice_id)
        if invoice.status == InvoiceStatus.DRAFT:
            await issue(session, invoice, today_of(services.config))
    return _body(invoice)


@router.post("/{invoice_id}/pay")
async def pay_invoice(invoice_id: Id, services: Shared) -> InvoiceBody:
    async with services.sessions.begin() as session:
        await session.execute(select(Invoice.id).where(Invoice.id == invoice_id).with_for_update())
        invoice = await _found(session, invoice_id)
        if invoice.status == InvoiceStatus.DRAFT:
            raise HTTPException(409, "a draft cannot be paid")
        invoice.status = InvoiceStatus.PAID
    return _body(invoice)


async def _found(session: AsyncSession, invoice_id: int) -> Invoice:
    try:
        return await load_invoice(session, invoice_id)
    except NoResultFound:
        raise HTTPException(404, "there is no such invoice") from None


async def _next_number(session: AsyncSession, year: int) -> str:
    """Take the next number of the year. Others who issue wait until this transaction ends."""
    first = insert(InvoiceNumber).values(year=year, last=1)
    following = first.on_conflict_do_update(index_elements=[InvoiceNumber.year], set_={"last": InvoiceNumber.last + 1})
    number = (await session.execute(following.returning(InvoiceNumber.last))).scalar_one()
    return f"{year}-{number:05}"


def _body(invoice: Invoice) -> InvoiceBody:
    return InvoiceBody(
        id=invoice.id,
        customer_id=invoice.customer_id,
        currency=invoice.currency,
        status=InvoiceStatus(invoice.status),
        number=invoice.number,
        issued_on=invoice.issued_on,
        due_on=invoice.due_on,
        total=invoice.total.amount,
        lines=[
            LineBody(
                description=line.description,
                quantity=line.quantity,
                unit_price=line.unit(invoice.currency).amount,
                tax_rate=line.tax_rate,
            )
            for line in invoice.lines
        ],
    )
