"""The chain of a delivery, step by step: the row and its job end together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast import Tick
from holdfast.testing import Testing
from tenders.app import app
from tenders.chain import Step, dispatch, receipt
from tenders.ingest import ingest
from tenders.local.push import Faults
from tenders.push import Delivered, Sent
from tenders.runs import newest
from tenders.tests.phones import prefer, sign_on_one
from tenders.times import written
from tests.kit.statement import CYCLES, Document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    import psycopg

    from tenders.app import State
    from tenders.local.server import LocalServer
    from tenders.push import Push, Receipt

    Connection = psycopg.AsyncConnection[Any]

doc = Document(CYCLES)

PHONE = "ExponentPushToken[phone-1]"


class Provider:
    """Another provider, which takes everything and keeps it."""

    name = "other"

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self.seen: list[Push] = []
        self._meanwhile = meanwhile

    async def send(self, pushes: Sequence[Push]) -> list[Sent]:
        self.seen.extend(pushes)
        if self._meanwhile is not None:
            await self._meanwhile()
        return [Sent("ticket") for _ in pushes]

    async def fetch_receipts(self, tickets: Sequence[str]) -> dict[str, Receipt]:
        return {ticket: Delivered() for ticket in tickets}


class Row(NamedTuple):
    status: str
    attempt_count: int
    last_error_code: str | None
    ended: bool
    ticket: bool
    receipt: bool


@pytest.fixture
async def phone(conn: Connection, local: LocalServer, state: State) -> UUID:
    """A phone with one delivery."""
    phone = await sign_on_one(conn, "phone")
    del local.market.tenders[1:]
    await ingest(Tick(name="ingest", state=state))
    return phone


async def row(conn: Connection) -> Row:
    query = """SELECT status, attempt_count, last_error_code, completed_at IS NOT NULL, provider_ticket_id IS NOT NULL,
        provider_receipt_id IS NOT NULL FROM notification_deliveries"""
    [found] = await (await conn.execute(query)).fetchall()
    return Row(*found)


async def one(conn: Connection, query: str) -> Any:
    [[found]] = await (await conn.execute(query.encode())).fetchall()
    return found


@doc.states("pending, sent, ok: a receipt confirms a delivery")
@doc.states("licitaciones.notificada is set at dispatch, and does not wait for the receipt")
async def test_a_delivery_is_sent_and_confirmed(phone: UUID, kit: Testing, conn: Connection) -> None:
    drained = await kit.drain()
    assert [ran.kind for ran in drained] == ["delivery.dispatch"]
    assert await row(conn) == Row("sent", 1, None, ended=False, ticket=True, receipt=False)
    assert await one(conn, "SELECT notificada FROM licitaciones") is True, "set at dispatch, before the receipt"
    await kit.travel(minutes=1)
    [ran] = await kit.drain()
    assert (ran.kind, ran.outcome) == ("delivery.receipt", "completed")
    assert await row(conn) == Row("ok", 1, None, ended=True, ticket=True, receipt=True)
    assert await one(conn, "SELECT count(*) FROM holdfast.job") == 0
    assert await one(conn, "SELECT provider_receipt_id = provider_ticket_id FROM notification_deliveries") is True


async def test_the_push_reads_as_people_in_chile_write(
    phone: UUID, conn: Connection, state: State, local: LocalServer
) -> None:
    provider = Provider()
    await Testing(app, conn, state=replace(state, push=provider)).drain()
    [push], [tender] = provider.seen, local.market.tenders
    assert push.title == "Nueva licitación"
    assert push.body == f"{tender.nombre} · Hospital de Valdivia · $2.084.567 · cierra {written(tender.cierre)}"
    assert push.data.keys() == {"id", "codigo"}


@doc.states("pending, retryable, failed: a delivery fails after the last pause")
@doc.states("next_attempt_at is in the row of the delivery, and its job is due then")
async def test_the_backoff_table_from_the_first_failure_to_the_last(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(send={"error": 1})
    for attempt, minutes in enumerate([1, 2, 4, 8, 16, 60], 1):
        await kit.drain()
        assert await row(conn) == Row("retryable", attempt, "Unavailable", ended=False, ticket=False, receipt=False)
        wait = "SELECT next_attempt_at - updated_at FROM notification_deliveries"
        assert await one(conn, wait) == timedelta(minutes=minutes)
        due = "SELECT j.available_at = d.next_attempt_at FROM holdfast.job j, notification_deliveries d"
        assert await one(conn, due) is True, "the row and the job have the same time"
        await kit.travel(seconds=60 * minutes - 1)
        assert len(await kit.drain()) == 0
        await kit.travel(seconds=1)
    await kit.drain()
    assert await row(conn) == Row("failed", 7, "Unavailable", ended=True, ticket=False, receipt=False)
    assert await one(conn, "SELECT count(*) FROM holdfast.job") == 0
    assert await one(conn, "SELECT notificada FROM licitaciones") is False, "nothing was ever sent"


async def test_a_push_that_is_sent_again_has_the_same_id(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(send={"lost": 1})
    await kit.drain()
    local.push.faults = Faults()
    await kit.travel(minutes=1)
    await kit.drain()
    first, second = local.push.taken
    assert first["id"] == second["id"] == str(await one(conn, "SELECT delivery_key FROM notification_deliveries"))
    assert (
        first["ticket"] != second["ticket"] == await one(conn, "SELECT provider_ticket_id FROM notification_deliveries")
    )


@doc.states("pending, invalid: a device that is not registered, and its installation is invalidated")
async def test_a_phone_that_is_gone_is_signed_off(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(unregistered=[PHONE])
    await kit.drain()
    assert await row(conn) == Row("invalid", 1, "DeviceNotRegistered", ended=True, ticket=False, receipt=False)
    signed = "SELECT active, inactive_reason, inactive_since IS NOT NULL FROM device_installations"
    assert await (await conn.execute(signed)).fetchall() == [(False, "DeviceNotRegistered", True)]


@doc.states("a receipt that says invalid invalidates the installation")
@doc.states("a receipt that fails does not revert notificada")
async def test_a_receipt_may_find_that_a_phone_is_gone(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    await kit.drain()
    local.push.faults = Faults(unregistered=[PHONE])
    await kit.travel(minutes=1)
    await kit.drain()
    assert await row(conn) == Row("invalid", 1, "DeviceNotRegistered", ended=True, ticket=True, receipt=True)
    assert await one(conn, "SELECT active FROM device_installations") is False
    assert await one(conn, "SELECT notificada FROM licitaciones") is True, "never taken back"


async def test_a_receipt_with_an_error_that_passes_sends_again(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(receipt={"MessageRateExceeded": 1})
    await kit.drain()
    await kit.travel(minutes=1)
    await kit.drain()
    assert await row(conn) == Row("retryable", 1, "MessageRateExceeded", ended=False, ticket=True, receipt=False)
    local.push.faults = Faults()
    await kit.travel(minutes=1)
    await kit.drain()
    await kit.travel(minutes=1)
    await kit.drain()
    assert await row(conn) == Row("ok", 2, None, ended=True, ticket=True, receipt=True)


async def test_a_receipt_that_is_missing_is_asked_for_until_the_deadline(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(receipt={"missing": 1})
    await kit.drain()
    for _ in range(3):
        await kit.travel(minutes=1)
        [ran] = await kit.drain()
        assert (ran.kind, ran.outcome, ran.attempt) == ("delivery.receipt", "reschedule", 1)
    await conn.execute("UPDATE notification_deliveries SET sent_at = now() - interval '25 hours'")
    await kit.travel(minutes=1)
    await kit.drain()
    assert await row(conn) == Row("failed", 1, "ReceiptMissing", ended=True, ticket=True, receipt=False)


async def test_a_limit_of_requests_counts_no_attempt(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(send={"rate_limited": 1}, retry_after=30)
    [ran] = await kit.drain()
    assert ran.outcome == "released"
    assert await row(conn) == Row("pending", 0, None, ended=False, ticket=False, receipt=False)
    local.push.faults = Faults()
    await kit.travel(seconds=30)
    await kit.drain()
    assert (await row(conn)).status == "sent"


async def test_receipts_that_cannot_be_fetched_are_tried_again(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    await kit.drain()
    local.push.faults = Faults(fetch={"error": 1})
    await kit.travel(minutes=1)
    [ran] = await kit.drain(raise_errors=False)
    assert (ran.outcome, ran.error_code) == ("retry", "Unavailable")
    assert (await row(conn)).status == "sent"
    assert await one(conn, "SELECT error_message FROM delivery_runs WHERE cycle = 'receipt'") == (
        "Unavailable: getReceipts: status 502"
    )


@doc.states("the installation and the preferences are checked again at dispatch")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE device_installations SET active = false", "InstallationInactive"),
        ("UPDATE notification_preferences SET enabled = false", "PreferencesChanged"),
    ],
)
async def test_a_delivery_that_is_no_longer_wanted_is_not_sent(  # noqa: PLR0917 - fixtures are arguments
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer, change: str, code: str
) -> None:
    await conn.execute(change.encode())
    await kit.drain()
    assert await row(conn) == Row("failed", 0, code, ended=True, ticket=False, receipt=False)
    assert not local.push.taken
    assert await one(conn, "SELECT notificada FROM licitaciones") is False


async def test_preferences_are_checked_again_at_a_retry(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    local.push.faults = Faults(send={"error": 1})
    await kit.drain()
    await prefer(conn, phone, regiones=["Tarapacá"])
    await kit.travel(minutes=1)
    await kit.drain()
    assert await row(conn) == Row("failed", 1, "PreferencesChanged", ended=True, ticket=False, receipt=False)


async def test_a_job_of_a_delivery_that_has_ended_changes_nothing(
    phone: UUID, kit: Testing, conn: Connection, local: LocalServer
) -> None:
    await kit.drain()
    await kit.travel(minutes=1)
    await kit.drain()
    delivery = await one(conn, "SELECT id FROM notification_deliveries")
    before = await one(conn, "SELECT d::text FROM notification_deliveries d")
    for kind in (dispatch, receipt):
        ran = await kit.run_job(kind.new(Step(delivery)))
        assert (ran.outcome, ran.result) == ("completed", "ok")
    assert (await kit.run_job(dispatch.new(Step(delivery + 1)))).result == "archived"
    assert await one(conn, "SELECT d::text FROM notification_deliveries d") == before
    assert len(local.push.taken) == 1


async def test_a_row_is_not_written_if_its_job_is_lost(phone: UUID, conn: Connection, state: State) -> None:
    async def lose() -> None:
        # While the provider answers, the lease expires, and another worker takes the job.
        await conn.execute("UPDATE holdfast.job SET lock_token = lock_token + 1")

    await Testing(app, conn, state=replace(state, push=Provider(lose))).drain()
    assert await row(conn) == Row("pending", 0, None, ended=False, ticket=False, receipt=False)


@doc.states("worker_runs has the counts of dispatch and receipts")
async def test_each_call_is_recorded_with_its_counts(phone: UUID, kit: Testing, conn: Connection, state: State) -> None:
    await kit.drain()
    await kit.travel(minutes=1)
    await kit.drain()
    found = await newest(state.pool, limit=10)
    assert [(run["worker_name"], run["counts"]) for run in found] == [("receipt", {"ok": 1}), ("dispatch", {"sent": 1})]
    assert await one(conn, "SELECT sum(notifications_sent) FROM worker_runs") == 1
