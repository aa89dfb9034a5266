"""Django's patterns: a TestCase, whose tests are atomic blocks, and plain fixtures that do the same."""

from __future__ import annotations

import unittest
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, transaction
from django.test import TestCase

from holdfast import Holdfast, Job
from holdfast._model.kind import Kind
from holdfast.contrib.django._application import FreshConnections
from holdfast.testing import Testing
from tests.kit.django_config import connected
from tests.testing.invoices import Invoice, app, charge, create_tables, pay, send_receipt
from tests.testing.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


@pytest.fixture(autouse=True)
def site(database: str) -> Iterator[None]:
    with connected(default=database):
        create_tables()
        yield


class InvoiceTests(TestCase):
    """As a user would write it; run below, once there is a database for it."""

    __test__ = False

    def setUp(self) -> None:
        self.holdfast = Testing(app, connection)
        assert not Invoice.objects.exists(), "every test is rolled back"

    def test_jobs_run_on_the_tests_own_data(self) -> None:
        pay(7)
        invoice = Invoice.objects.get()
        self.holdfast.sync.assert_enqueued(charge.new(invoice.pk))
        drained = self.holdfast.sync.drain()
        assert len(drained.completed) == 2
        self.holdfast.sync.assert_enqueued(send_receipt.new(invoice.pk))
        invoice.refresh_from_db()
        assert (invoice.paid, invoice.receipts) == (True, 1)

    def test_what_a_handler_raises_undoes_its_own_block_only(self) -> None:
        pay(-1)
        with pytest.raises(IntegrityError):
            self.holdfast.sync.drain()
        assert not Invoice.objects.get().paid
        self.holdfast.sync.assert_enqueued(send_receipt.new(Invoice.objects.get().pk), times=0)

    def test_a_plain_handler_records_its_steps(self) -> None:
        own, runs = Holdfast(), []

        def count(conn: Any, order: int) -> int:
            runs.append(order)
            return len(runs)

        @own.job("fulfil")
        def fulfil(job: Job[None], order: int) -> int:
            found = job.sync.step_on(connection, "count", count, order)
            job.sync.sleep("cool off", 60)
            return found

        kit = Testing(own, connection).sync
        with transaction.atomic():
            own.sync.enqueue(connection, fulfil.new(7))
            kit.run_until("cool off")
            kit.travel(minutes=1)
            (ran,) = kit.drain()
        assert (ran.result, runs) == (1, [7])

    async def test_an_async_test(self) -> None:
        await sync_to_async(pay)(7)
        drained = await sync_to_async(self.holdfast.sync.drain)()
        assert len(drained.completed) == 2
        assert (await Invoice.objects.aget()).receipts == 1

    def test_the_whole_story(self) -> None:
        story = Story()
        story.report_sync(Testing(story.app, connection))


def test_a_test_case_with_the_django_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wrapper closes old connections around each handler, and must leave the test's own alone."""
    fresh = FreshConnections()
    for kind in app.kinds.values():
        if isinstance(kind, Kind):
            monkeypatch.setattr(kind, "handler", fresh(kind.handler))
    test_a_test_case()


def test_a_test_case() -> None:
    InvoiceTests.__test__ = True
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(InvoiceTests)
    InvoiceTests.__test__ = False
    result = unittest.TestResult()
    suite.run(result)
    assert not [trace for _, trace in (*result.errors, *result.failures)]
    assert result.testsRun == 5


@pytest.fixture
def db() -> Iterator[None]:
    """The same as pytest-django's fixture of this name."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def holdfast_app() -> Holdfast:
    return app


@pytest.fixture
def holdfast_connection(db: None) -> Any:
    return connection


def test_plain_fixtures(holdfast: Testing) -> None:
    pay(7)
    pay(8)
    assert len(holdfast.sync.drain().completed) == 4
    assert list(Invoice.objects.values_list("number", "paid", "receipts")) == [(7, True, 1), (8, True, 1)]


def test_handlers_use_the_connection_of_the_test(holdfast: Testing, connect: Any) -> None:
    pay(7)
    holdfast.sync.drain()
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    other: psycopg.Connection[Any] = connect()
    assert other.execute(count).fetchone() == (1,), "no thread has opened another"
    assert other.execute("SELECT count(*) FROM invoice").fetchone() == (0,)
