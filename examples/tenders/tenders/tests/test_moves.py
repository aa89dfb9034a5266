"""Restarted, redeployed with a changed payload, and moved to cron alone, under load: nothing is lost."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tenders.tests.fleet import Ledger, LocalProcess, tick, worker
from tenders.tests.phones import sign_on
from tenders.tests.releases import next_release

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nightly

PHONES = 40
# A day's load: some requests fail, and receipts come late.
LOAD: dict[str, Any] = {"send": {"ok": 4, "error": 1}, "receipt": {"ok": 3, "missing": 1}, "retry_after": 0.2}
DOWN: dict[str, Any] = LOAD | {"send": {"rate_limited": 1}}
OLD_JOBS = "SELECT count(*) FROM holdfast.job WHERE kind LIKE 'delivery.%' AND coalesce(payload_version, 1) = 1"


def test_nothing_is_lost(database: str, tmp_path: Path) -> None:
    changed = next_release(tmp_path)
    with ExitStack() as ends:
        ledger = Ledger(ends.enter_context(psycopg.connect(database, autocommit=True)))
        local = ends.enter_context(LocalProcess(tenders=3))
        local.control(push=LOAD)
        sign_on(ledger.conn, PHONES)

        # Restarted: stopped as a deployment stops it, and started again.
        first = ends.enter_context(worker(local, database))
        ledger.until(lambda: ledger.ended >= PHONES)
        local.control(publish=2)
        first.signal(signal.SIGTERM)
        assert first.process.wait(30) == 0
        second = ends.enter_context(worker(local, database))
        ledger.until(lambda: ledger.ended >= 3 * PHONES)

        # Redeployed: the provider takes nothing, so that jobs of the former release wait when that is killed.
        local.control(push=DOWN, publish=2)
        ledger.until(lambda: ledger.deliveries == 7 * PHONES)
        second.signal(signal.SIGKILL)
        second.process.wait()
        assert ledger.value(OLD_JOBS) >= 2 * PHONES
        third = ends.enter_context(worker(local, database, changed))
        local.control(push=LOAD, publish=2)
        ledger.until(lambda: ledger.deliveries == 9 * PHONES)
        ledger.until(lambda: ledger.ended >= 7 * PHONES)
        ledger.until(lambda: ledger.value(OLD_JOBS) == 0)

        # Moved to cron: no worker runs any more, and a tick comes now and then.
        local.control(publish=2)
        third.signal(signal.SIGTERM)
        assert third.process.wait(30) == 0
        ticks = 0
        while ledger.deliveries < 11 * PHONES or ledger.ended < ledger.deliveries:
            ticks += 1
            assert ticks <= 60, ledger.state()
            ticked = tick(local, database, changed)
            assert ticked.status == 0, ticked

        books = ledger.close_books(local)
        assert books.statuses.total() == 11 * PHONES
        assert books.statuses["ok"] + books.statuses["failed"] == 11 * PHONES
        # A delivery fails only after all its attempts.
        failed = "SELECT count(*) FROM notification_deliveries WHERE status = 'failed' AND attempt_count < 7"
        assert ledger.value(failed) == 0
        assert ledger.value("SELECT count(*) FROM licitaciones WHERE notificada") == 11
