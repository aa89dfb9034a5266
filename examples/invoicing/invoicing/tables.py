"""The tables. Every amount is in cents, in the currency of its invoice or class."""

from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    Numeric,
    Text,
    UniqueConstraint,
    func,
    select,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, joinedload, mapped_column, relationship, selectinload

from .money import Money, Tax, taxes, total
from .storage import Pdf


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own way
        int: BigInteger,
        str: Text,
        datetime: DateTime(timezone=True),
        Decimal: Numeric(9, 2),
    }


class User(Base):
    """A person of the office."""

    __tablename__ = "app_user"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]


class LoginLink(Base):
    """A link that signs its user in once. Only a digest of its code is stored."""

    __tablename__ = "login_link"

    digest: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class Customer(Base):
    __tablename__ = "customer"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str]
    address: Mapped[str]


class InvoiceStatus(StrEnum):
    DRAFT = "DRAFT"
    ISSUED = "ISSUED"
    PAID = "PAID"


class InvoiceNumber(Base):
    """The last number of each year. It is taken in the transaction that issues, so there are no gaps."""

    __tablename__ = "invoice_number"

    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last: Mapped[int]


class Invoice(Base):
    __tablename__ = "invoice"
    __table_args__ = (
        UniqueConstraint("customer_id", "billed_month", "currency", name="invoice_once_a_month"),
        Index("invoice_due", "due_on", postgresql_where="status = 'ISSUED'"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)
    currency: Mapped[str]
    status: Mapped[str] = mapped_column(default=InvoiceStatus.DRAFT)
    number: Mapped[str | None] = mapped_column(unique=True)
    issued_on: Mapped[date | None]
    due_on: Mapped[date | None]
    reminded_on: Mapped[date | None]
    billed_month: Mapped[date | None]
    """The month of classes that it bills. None: it was written by hand."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    customer: Mapped[Customer] = relationship(lazy="raise")
    lines: Mapped[list["InvoiceLine"]] = relationship(lazy="raise", order_by="InvoiceLine.position")
    document: Mapped["Document | None"] = relationship(lazy="raise")

    @property
    def taxes(self) -> list[Tax]:
        return taxes((line.tax_rate, line.net(self.currency)) for line in self.lines)

    @property
    def total(self) -> Money:
        return total(part for tax in self.taxes for part in (tax.net, tax.tax))


class InvoiceLine(Base):
    __tablename__ = "invoice_line"

    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    description: Mapped[str]
    quantity: Mapped[Decimal]
    unit_cents: Mapped[int]
    tax_rate: Mapped[Decimal]

    def unit(self, currency: str) -> Money:
        return Money(self.unit_cents, currency)

    def net(self, currency: str) -> Money:
        return self.unit(currency) * self.quantity


class Document(Base):
    """The PDF of an invoice: which chain of jobs renders it, and where it is when it is ready."""

    __tablename__ = "document"
    __table_args__ = (CheckConstraint("(key IS NULL) = (size IS NULL)", name="document_ready"),)

    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), primary_key=True)
    chain_id: Mapped[int]
    key: Mapped[str | None]
    size: Mapped[int | None]

    @property
    def pdf(self) -> Pdf | None:
        return None if self.key is None or self.size is None else Pdf(self.key, self.size)


class EmailDelivery(Base):
    """A mail that is to be sent once. Whether it was sent is known here."""

    __tablename__ = "email_delivery"

    idempotency_key: Mapped[str] = mapped_column(primary_key=True)
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), index=True)
    recipient: Mapped[str]
    sent_at: Mapped[datetime | None]


class TaxSnapshot(Base):
    """The taxes of an invoice as they were when it was issued, one row for each rate."""

    __tablename__ = "tax_snapshot"

    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), primary_key=True)
    rate: Mapped[Decimal] = mapped_column(primary_key=True)
    net_cents: Mapped[int]
    tax_cents: Mapped[int]


class LedgerEntry(Base):
    """The amount that a customer owes for an invoice."""

    __tablename__ = "ledger_entry"

    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)
    cents: Mapped[int]
    currency: Mapped[str]


class MusicClass(Base):
    __tablename__ = "class"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    lesson_cents: Mapped[int]
    currency: Mapped[str]
    tax_rate: Mapped[Decimal]


class Attendance(Base):
    """A customer attended a class on a day. It is billed once, by one invoice."""

    __tablename__ = "attendance"
    __table_args__ = (
        Index("attendance_unbilled", "customer_id", "attended_on", postgresql_where="invoice_id IS NULL"),
    )

    class_id: Mapped[int] = mapped_column(ForeignKey(MusicClass.id), primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), primary_key=True)
    attended_on: Mapped[date] = mapped_column(primary_key=True)
    invoice_id: Mapped[int | None] = mapped_column(ForeignKey(Invoice.id), index=True)


async def load_invoice(session: AsyncSession, invoice_id: int) -> Invoice:
    """Return an invoice with its lines, its customer and its document. Raise NoResultFound if there is none."""
    whole = selectinload(Invoice.lines), joinedload(Invoice.customer), joinedload(Invoice.document)
    return (await session.scalars(select(Invoice).where(Invoice.id == invoice_id).options(*whole))).one()
