"""Deliveries while the provider fails in every way that it has, and workers are killed."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tenders.tests.fleet import Ledger, LocalProcess, tick, worker
from tenders.tests.phones import sign_on
from tests.kit.statement import CYCLES, Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.commands import Running

pytestmark = pytest.mark.nightly

doc = Document(CYCLES)

# One request in three fails, and of the pushes and receipts some.
FAULTS: dict[str, Any] = {
    "send": {"ok": 10, "error": 1, "lost": 1, "slow": 1, "rate_limited": 2},
    "ticket": {"ok": 40, "MessageRateExceeded": 2, "MessageTooBig": 1},
    "fetch": {"ok": 8, "error": 1, "slow": 1, "rate_limited": 1},
    "receipt": {"ok": 400, "missing": 200, "MessageRateExceeded": 20, "DeviceNotRegistered": 1},
    "slow_seconds": 0.6,
    "retry_after": 0.2,
}

REASONS = "SELECT coalesce(last_error_code, 'ok'), count(*) FROM notification_deliveries GROUP BY 1 LIMIT 50"


@doc.states("at least once: every delivery ends, and pushes that are sent again have the same id")
@pytest.mark.parametrize(
    ("tenders", "phones", "workers", "kills"),
    [
        pytest.param(10, 50, 2, 2, id="500 deliveries"),
        pytest.param(50, 200, 3, 30, id="10000 deliveries", marks=[pytest.mark.prove, pytest.mark.timeout(1800)]),
    ],
)
def test_every_delivery_ends_whatever_fails(  # noqa: PLR0917 - fixtures are arguments
    database: str,
    tenders: int,
    phones: int,
    workers: int,
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    deliveries = tenders * phones
    with ExitStack() as ends:
        ledger = Ledger(ends.enter_context(psycopg.connect(database, autocommit=True)))
        local = ends.enter_context(LocalProcess(tenders=tenders))
        gone = [f"ExponentPushToken[gone-{number}]" for number in range(1, phones // 10 + 1)]
        local.control(push=FAULTS | {"unregistered": gone})
        sign_on(ledger.conn, phones - len(gone))
        sign_on(ledger.conn, len(gone), "gone")

        assert tick(local, database, HOLDFAST_TICK_RUNNERS="ingest").status == 0
        assert ledger.deliveries == deliveries
        began = time.monotonic()
        fleet = [ends.enter_context(worker(local, database)) for _ in range(workers)]
        for number in range(kills):
            share = deliveries * (number + 1) // (kills + 2)
            ledger.until(lambda share=share: ledger.ended >= share, deliveries / 10 + 60)  # type: ignore[misc] # bound
            victim = fleet.pop(0)
            victim.signal(signal.SIGKILL)
            victim.process.wait()
            fleet.append(ends.enter_context(worker(local, database)))
        ledger.until(lambda: ledger.ended == deliveries, deliveries / 10 + 60)
        took = time.monotonic() - began
        _stop(fleet)

        books = ledger.close_books(local)
        assert books.statuses.total() == deliveries
        assert books.statuses["ok"] > deliveries // 2
        assert books.statuses["invalid"] >= len(gone), "each of the phones that are gone was noticed once"
        assert ledger.value("SELECT count(*) FROM device_installations WHERE NOT active") >= len(gone)
        assert ledger.value("SELECT count(*) FROM licitaciones WHERE NOT notificada") == 0
        fetched = "SELECT count(*) FROM delivery_runs WHERE cycle = 'receipt'"
        assert ledger.value(fetched) < books.attempts, "many receipts were fetched in one call"
        reasons = dict(ledger.conn.execute(REASONS).fetchall())
        output = (
            f"{deliveries} deliveries, {kills} workers killed, {took:.0f} s: {dict(books.statuses)}, {reasons}, "
            f"{books.pushes} pushes, {books.again} of them again, under one id each; "
            f"{ledger.value(fetched)} calls for receipts; requests {local.control()['requests']}"
        )
    sys.stdout.write(f"\n{output}\n")
    record_property("deliveries", output)


def _stop(fleet: list[Running]) -> None:
    for each in fleet:
        each.signal(signal.SIGTERM)
    for each in fleet:
        assert each.process.wait(30) == 0
