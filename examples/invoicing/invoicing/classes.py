"""Classes, and who attended them."""

from datetime import date

from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from .api import Amount, Body, Id, Line, Percent, Shared
from .money import Currency, Money
from .tables import Attendance, MusicClass
from .users import Office, signed_in

router = APIRouter(prefix="/classes", tags=["classes"])


class NewClass(Body):
    name: Line
    lesson_price: Amount
    currency: Currency = "EUR"
    tax_rate: Percent


class ClassBody(NewClass):
    id: int


class AttendanceBody(Body):
    customer_id: Id
    attended_on: date


@router.post("", status_code=201, dependencies=[Office])
async def add_class(new: NewClass, services: Shared) -> ClassBody:
    async with services.sessions.begin() as session:
        price = Money.of(new.lesson_price, new.currency)
        added = MusicClass(name=new.name, lesson_cents=price.cents, currency=new.currency, tax_rate=new.tax_rate)
        session.add(added)
    return ClassBody(id=added.id, **new.model_dump())


@router.post("/{class_id}/attendance", status_code=204, dependencies=[Depends(signed_in())])
async def record_attendance(class_id: Id, new: AttendanceBody, services: Shared) -> None:
    """Record that a customer attended a lesson. Recorded twice, it is billed once."""
    row = insert(Attendance).values(class_id=class_id, customer_id=new.customer_id, attended_on=new.attended_on)
    try:
        async with services.sessions.begin() as session:
            await session.execute(row.on_conflict_do_nothing())
    except IntegrityError:
        raise HTTPException(404, "there is no such class, or no such customer") from None
