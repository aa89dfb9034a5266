"""A shop on Flask and SQLAlchemy. An order and the job that mails its receipt are committed together.

createdb shop && export DATABASE_URL=postgresql://localhost/shop FLASK_APP=shop
flask tables && flask holdfast migrate && flask run               (and beside it: flask holdfast worker)
"""

from __future__ import annotations

import os

from flask import Flask, abort, request
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from holdfast import Holdfast, Job
from holdfast.contrib.flask import init_app

URL = os.environ["DATABASE_URL"]

app = Holdfast(URL)
engine = create_engine(make_url(URL).set(drivername="postgresql+psycopg"))
session = scoped_session(sessionmaker(engine, expire_on_commit=False))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    address: Mapped[str]
    receipt: Mapped[str | None] = mapped_column(default=None)


web = Flask(__name__)
init_app(web, app)


@web.teardown_appcontext
def close_session(_error: BaseException | None) -> None:
    """After each request, and after each job: a handler has an application context too."""
    session.remove()


@app.job("receipt.send")
def send_receipt(job: Job[None], order_id: int) -> None:
    with session.begin():
        session.get_one(Order, order_id).receipt = f"sent, attempt {job.attempt}"


@web.post("/orders")
def place_order() -> tuple[dict[str, int], int]:
    form = request.get_json()
    with session.begin():
        order = Order(address=form["address"])
        session.add(order)
        session.flush()
        app.sync.enqueue(session, send_receipt.new(order.id))
        if form.get("card") == "declined":
            abort(409)  # rolls back: there is no order, and no job
    return {"id": order.id}, 201


@web.get("/orders/<int:order_id>")
def show_order(order_id: int) -> dict[str, str | None]:
    order = session.get(Order, order_id) or abort(404)
    return {"receipt": order.receipt}


@web.cli.command("tables")
def create_tables() -> None:
    Base.metadata.create_all(engine)
