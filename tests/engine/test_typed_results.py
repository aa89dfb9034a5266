"""Results are stored and read by the types that handlers declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from holdfast import Continue, Fail, Holdfast, InvalidJob, Item, Job
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Kind
    from tests.kit.ledger import Ledger

AT = datetime(2026, 7, 3, 14, 2, 11, 500_000, tzinfo=UTC)
KEY = UUID("12345678-1234-5678-1234-567812345678")
WAIT = timedelta(seconds=30)


class Color(Enum):
    red = "r"
    blue = "b"


@dataclass
class Line:
    sku: str
    price: Decimal


class Invoice(BaseModel):
    number: int = Field(alias="invoiceNumber")
    lines: list[Line]
    paid_at: datetime | None = None


class Point(NamedTuple):
    x: int
    y: float


class Row(TypedDict):
    at: datetime
    color: Color


LINE = Line("a", Decimal("0.10"))
INVOICE = Invoice(invoiceNumber=7, lines=[Line("a", Decimal("1.50"))], paid_at=AT)
VALUES: list[tuple[Any, Any]] = [
    (Invoice, INVOICE),
    (Line, LINE),
    (datetime, AT),
    (date, AT.date()),
    (timedelta, timedelta(minutes=3, microseconds=1)),
    (UUID, KEY),
    (Decimal, Decimal("12345678901234567890.10")),
    (Color, Color.blue),
    (bytes, b"\x00\xff"),
    (Point, Point(1, 2.5)),
    (Row, {"at": AT, "color": Color.red}),
    (dict[UUID, list[Invoice]], {KEY: [INVOICE]}),
    (set[date], {AT.date()}),
    (Invoice | None, None),
    (Line | Fail | Continue[datetime], Line("b", Decimal(2))),
    (str, "héllo \x00 \udc00"),
    (dict[str, Any], {"a": [1, None, "x"]}),
]


def returning(app: Holdfast, kind: str, hint: Any, value: object) -> Kind[..., Any]:
    async def handler(job: Job[None]) -> Any:
        return value

    handler.__annotations__["return"] = hint
    return app.job(kind)(handler)


async def test_a_result_comes_back_as_what_it_was(app: Holdfast, ledger: Ledger) -> None:
    kinds = [returning(app, f"kind{number}", hint, value) for number, (hint, value) in enumerate(VALUES)]
    handles = [app.sync.enqueue(ledger.conn, kind.new()) for kind in kinds]
    async with app.worker(**QUICK):
        found = [await app.wait(handle, timeout=WAIT) for handle in handles]
    assert found == [value for _, value in VALUES]
    assert [type(one) for one in found] == [type(value) for _, value in VALUES]


def in_process(job: Job[None]) -> Invoice:
    return INVOICE


async def test_so_do_those_of_processes_batches_and_own_transactions(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("batch")
    async def batch(items: list[Item[Line]]) -> list[Invoice | Fail]:
        return [INVOICE for _ in items]

    @app.job("completes")
    async def completes(job: Job[None]) -> Invoice:
        async with await psycopg.AsyncConnection.connect(app.url) as conn:
            return await job.complete(conn, INVOICE)

    process = app.job("process", executor="process")(in_process)
    handles = [app.sync.enqueue(ledger.conn, new) for new in (batch.new(LINE), completes.new(), process.new())]
    async with app.worker(**QUICK):
        assert [await app.wait(handle, timeout=WAIT) for handle in handles] == [INVOICE] * 3


async def test_so_do_those_that_complete_a_chain_from_outside(app: Holdfast, ledger: Ledger) -> None:
    kinds = [returning(app, f"kind{number}", hint, None) for number, (hint, _) in enumerate(VALUES)]
    handles = [app.sync.enqueue(ledger.conn, kind.new().options(priority=1)) for kind in kinds]
    handles += app.sync.enqueue_many(ledger.conn, [kind.new() for kind in kinds])
    values = [value for _, value in VALUES] * 2
    for handle, value in zip(handles, values, strict=True):
        assert app.sync.complete_chain(ledger.conn, handle, value) == "completed"
    found = [await app.wait(handle, timeout=WAIT) for handle in handles]
    assert found == values
    assert [type(one) for one in found] == [type(value) for value in values]


async def test_by_its_id_a_chain_takes_what_json_has(app: Holdfast, ledger: Ledger) -> None:
    kind = returning(app, "kind", datetime, None)
    handle = app.sync.enqueue(ledger.conn, kind.new())
    with pytest.raises(InvalidJob, match=r"^chain \d+: "):
        app.sync.complete_chain(ledger.conn, handle.chain_id, AT)
    assert app.sync.complete_chain(ledger.conn, handle.chain_id, AT.isoformat()) == "completed"
    assert await app.wait(handle, timeout=WAIT) == AT


async def test_a_value_of_another_type_is_stored_as_what_it_is(app: Holdfast, ledger: Ledger) -> None:
    """The work is done: the reader gets the error, and the job is no dead letter."""
    kind = returning(app, "other", Line, {"sku": 7})
    handle = app.sync.enqueue(ledger.conn, kind.new())
    async with app.worker(**QUICK):
        with pytest.raises(InvalidJob, match="other: "):
            await app.wait(handle, timeout=WAIT)
    assert ledger.job(handle.id)[:3] == ("completed", 1, {"sku": 7})


async def test_a_name_for_type_checkers_only_is_no_dead_letter(app: Holdfast, ledger: Ledger) -> None:
    kind = returning(app, "unnamed", "Nowhere", Line("a", Decimal(1)))
    handle = app.sync.enqueue(ledger.conn, kind.new())
    async with app.worker(**QUICK):
        with pytest.raises(InvalidJob, match="an annotation names Nowhere"):
            await app.wait(handle, timeout=WAIT)
    assert ledger.job(handle.id)[:3] == ("completed", 1, {"sku": "a", "price": "1"})


async def test_without_an_annotation_a_result_is_plain_json(app: Holdfast, ledger: Ledger) -> None:
    @app.job("plain")
    async def plain(job: Job[None], moment: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the point of it
        return AT if moment else [1]

    good, bad = (app.sync.enqueue(ledger.conn, plain.new(moment)) for moment in (False, True))
    async with app.worker(**QUICK):
        assert await app.wait(good, timeout=WAIT) == [1]
        await until(lambda: ledger.status(bad.id) == "failed")
    assert ledger.job(bad.id).error_code == "InvalidJob"


class Connected:
    """Something that only lives in its process."""


@pytest.mark.parametrize("hint", [Connected, list[Connected], Connected | None, Callable[[], int], SecretStr])
def test_a_type_that_cannot_travel_is_refused_when_it_is_registered(hint: Any) -> None:
    with pytest.raises(InvalidJob, match=r"^bad: what the handler returns cannot be stored and read again: "):
        returning(Holdfast(), "bad", hint, None)


def test_a_batch_is_refused_too() -> None:
    app = Holdfast()

    async def batch(items: list[Item[int]]) -> list[Connected]:
        return []

    with pytest.raises(InvalidJob, match=r"^bad: what the handler returns"):
        app.batch("bad")(batch)


@pytest.mark.parametrize("hint", [NoReturn, None, Fail, object, Any, Continue[None], Continue])
def test_what_returns_nothing_is_not(hint: Any) -> None:
    returning(Holdfast(), "fine", hint, None)
