"""Customers."""

from fastapi import APIRouter, HTTPException
from sqlalchemy import select

from .api import Body, Email, Id, Limit, Line, Shared, Text
from .tables import Customer
from .users import Office

router = APIRouter(prefix="/customers", tags=["customers"], dependencies=[Office])


class NewCustomer(Body):
    name: Line
    email: Email
    address: Text = ""


class CustomerBody(NewCustomer):
    id: int


@router.post("", status_code=201)
async def add_customer(new: NewCustomer, services: Shared) -> CustomerBody:
    async with services.sessions.begin() as session:
        customer = Customer(name=new.name, email=new.email, address=new.address)
        session.add(customer)
    return _body(customer)


@router.get("")
async def list_customers(services: Shared, after: Id = 0, limit: Limit = 50) -> list[CustomerBody]:
    """Return customers by their ids. The next page is `after` the last one."""
    page = select(Customer).where(Customer.id > after).order_by(Customer.id).limit(limit)
    async with services.sessions() as session:
        return [_body(customer) for customer in await session.scalars(page)]


@router.get("/{customer_id}")
async def show_customer(customer_id: Id, services: Shared) -> CustomerBody:
    async with services.sessions() as session:
        customer = await session.get(Customer, customer_id)
    if customer is None:
        raise HTTPException(404, "there is no such customer")
    return _body(customer)


def _body(customer: Customer) -> CustomerBody:
    return CustomerBody(id=customer.id, name=customer.name, email=customer.email, address=customer.address)
