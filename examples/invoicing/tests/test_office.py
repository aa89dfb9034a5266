"""The office at work: customers, invoices and classes over HTTP, and who may see what."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from examples.invoicing.invoicing.__main__ import main
from examples.invoicing.invoicing.billing import last_month
from examples.invoicing.invoicing.config import Config
from examples.invoicing.invoicing.migrate import settings
from examples.invoicing.invoicing.tables import Base
from examples.invoicing.tests.site import ADA, LESSON, RUNNERS_RAN, issued

if TYPE_CHECKING:
    from datetime import date

    import httpx

    from examples.invoicing.tests.site import Office, Site

pytestmark = pytest.mark.nightly

EVENTS = "/api/settings/events/api/v1"
OUTBOX = "/api/settings/events/outbox"
MARKED = {"X-Holdfast-Csrf": "1"}
KINDS = {"invoice.email.requested", "invoice.pdf.render.requested", "invoice.tax.snapshot.requested"}
# Every job of an invoice, live or ended.
ENQUEUED = """
    SELECT kind FROM (SELECT kind, payload FROM holdfast.job UNION ALL SELECT kind, payload FROM holdfast.job_history)
    AS job WHERE (payload ->> 'invoice_id')::int = %s
"""
PUBLISHED = "SELECT payload ->> 'number' FROM holdfast.event WHERE (payload ->> 'invoice_id')::int = %s"


async def test_issuing_enqueues_and_publishes_in_one_transaction(office: Office) -> None:
    site = office.site
    async with site.user() as client:
        customer = (await client.post("/customers", json=ADA)).json()
        lines = [LESSON, {"description": "Score", "unitPrice": "10.00", "taxRate": "7"}]
        draft = (await client.post("/invoices", json={"customerId": customer["id"], "lines": lines})).json()
        assert (draft["status"], draft["number"], draft["total"]) == ("DRAFT", None, "118.99")
        assert (await client.get(f"/invoices/{draft['id']}/pdf")).status_code == 409
        last = site.rows("SELECT last FROM invoice_number")

        site.execute(f"ALTER TABLE document ADD CONSTRAINT refused CHECK (invoice_id <> {draft['id']}) NOT VALID")
        # The server closes a connection after an error.
        refused = await client.post(f"/invoices/{draft['id']}/issue", headers={"Connection": "close"})
        assert refused.status_code == 500
        assert (site.rows(ENQUEUED, draft["id"]), site.rows(PUBLISHED, draft["id"])) == ([], [])
        assert site.value("SELECT status FROM invoice WHERE id = %s", draft["id"]) == "DRAFT"
        assert site.rows("SELECT last FROM invoice_number") == last, "no number is lost"

        site.execute("ALTER TABLE document DROP CONSTRAINT refused")
        answers = await asyncio.gather(*(client.post(f"/invoices/{draft['id']}/issue") for _ in range(5)))
        [number] = {answer.json()["number"] for answer in answers}
        assert {kind for (kind,) in site.rows(ENQUEUED, draft["id"])} == KINDS
        assert len(site.rows(ENQUEUED, draft["id"])) == 3, "issuing again changes nothing"
        assert site.rows(PUBLISHED, draft["id"]) == [(number,)]


async def test_roles_decide_who_sees_what(office: Office) -> None:
    site = office.site
    async with site.guest() as guest:
        assert (await guest.get("/invoices/1")).status_code == 401
        assert (await guest.get(f"{EVENTS}/jobs")).status_code == 401
        assert await _outbox(guest) == (401, 401)
        assert (await guest.get("/login/guessed")).status_code == 403
    async with site.user("teacher") as teacher:
        assert (await teacher.get("/invoices/1")).status_code == 403
        assert (await teacher.get(f"{EVENTS}/jobs")).status_code == 403
        assert await _outbox(teacher) == (403, 403)
        assert (await teacher.post("/users", json={"email": "eve@example.org", "role": "owner"})).status_code == 403
    pause = {"action": "pause"}
    async with site.user("accountant") as accountant:
        assert (await accountant.get(f"{EVENTS}/me")).json()["role"] == "viewer"
        refused = await accountant.post(f"{EVENTS}/queues/unused/actions", json=pause, headers=MARKED)
        assert refused.status_code == 403
        assert await _outbox(accountant) == (403, 403)
    async with site.user("owner") as owner:
        assert await _outbox(owner) == (200, 200)
        paused = await owner.post(f"{EVENTS}/queues/unused/actions", json=pause, headers=MARKED)
        assert paused.status_code == 200, paused.text
        assert site.value("SELECT who FROM holdfast.audit WHERE target = 'unused'") == "owner@example.org"
        invited = (await owner.post("/users", json={"email": "eve@example.org", "role": "accountant"})).json()
    async with site.guest() as eve:
        assert (await eve.get(invited["loginPath"])).status_code == 303
        assert (await eve.get("/me")).json() == {"email": "eve@example.org", "role": "accountant"}
        assert (await eve.get(invited["loginPath"])).status_code == 403, "a link signs in once"
        assert (await eve.post("/logout")).status_code == 204
        assert (await eve.get("/me")).status_code == 401


async def _outbox(client: httpx.AsyncClient) -> tuple[int, int]:
    """Ask for the statistics of the outbox and for one tick, and return the statuses of the answers."""
    stats = await client.get(f"{OUTBOX}/stats")
    run_once = await client.post(f"{OUTBOX}/run-once", headers=MARKED)
    return stats.status_code, run_once.status_code


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/customers", {"name": "\0", "email": "ada@example.org"}),
        ("/customers", {"name": "Ada", "email": "ada@example.org, eve@example.org"}),
        ("/customers", {"name": "Ada\nBcc: eve@example.org", "email": "ada@example.org"}),
        ("/invoices", {"customerId": 2**63, "lines": [LESSON]}),
        ("/invoices", {"customerId": 1, "lines": []}),
        ("/invoices", {"customerId": 1, "lines": [LESSON | {"unitPrice": "0.001"}]}),
        (f"/invoices/{2**64}/issue", {}),
    ],
    ids=["a byte of zero", "two recipients", "a header", "an id", "no lines", "a tenth of a cent", "a path"],
)
async def test_a_wrong_request_is_answered_with_400(office: Office, path: str, body: dict[str, Any]) -> None:
    async with office.site.user() as client:
        answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "INVALID_REQUEST")


def test_no_worker_runs_inside_the_api_by_default(office: Office) -> None:
    """The API started first, so its worker would be recorded like the one that runs beside it."""
    site = office.site
    assert site.serving is not None
    pids = {pid for (pid,) in site.rows("SELECT pid FROM holdfast.worker WHERE stopped_at IS NULL")}
    assert pids & {office.worker.process.pid, site.serving.process.pid} == {office.worker.process.pid}


@pytest.mark.prove
async def test_a_worker_runs_inside_the_api_only_if_it_is_asked_for(site: Site) -> None:
    workers = "SELECT count(*) FROM holdfast.worker"
    with site.api():
        async with site.user() as client:
            invoice = await issued(client)
            path = f"/invoices/{invoice['id']}/pdf?waitMs=1"
            assert ((await client.get(path)).status_code, site.value(workers)) == (202, 0)
    with site.api(HOLDFAST_WORKER_ENABLED="true"):
        async with site.user() as client:
            answer = await client.get(path.replace("waitMs=1", "waitMs=30000"))
            assert (answer.status_code, site.value(workers)) == (200, 1)


async def test_a_link_needs_only_the_database(
    office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOLDFAST_DATABASE_URL", *office.site.variables):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", office.site.database)
    monkeypatch.setattr("sys.argv", ["invoicing", "invite", "carol@example.org", "--role", "teacher"])
    assert await asyncio.to_thread(main) == 0
    async with office.site.guest() as carol:
        assert (await carol.get(capsys.readouterr().out.strip())).status_code == 303
        assert (await carol.get("/me")).json() == {"email": "carol@example.org", "role": "teacher"}


@pytest.mark.prove
async def test_the_commands_of_production(office: Office) -> None:
    site = office.site
    await asyncio.to_thread(site.command, "migrate")  # again, which changes nothing
    path = await asyncio.to_thread(site.command, "invite", "bob@example.org", "--role", "accountant")
    async with site.guest() as bob:
        assert (await bob.get(path)).status_code == 303
        assert (await bob.get("/me")).json() == {"email": "bob@example.org", "role": "accountant"}


async def test_a_month_of_classes_is_billed_once(office: Office) -> None:
    site = office.site
    today = datetime.now(Config.time_zone).date()
    month = last_month(today)
    customers, class_id = await _class_of(site, 2)
    async with site.user("teacher") as teacher:
        for customer_id in customers:
            for day in (month, month, month + timedelta(days=7), today):
                assert await _attended(teacher, class_id, customer_id, day) == 204
        assert await _attended(teacher, class_id, 0, today) == 404
    async with site.guest() as runner:
        assert (await runner.post("/internal/classes-billing", json={})).status_code == 401
        calls = [runner.post("/internal/classes-billing", json={}, headers=site.service) for _ in range(3)]
        answers = [answer.json()["billed"] for answer in await asyncio.gather(*calls)]
        assert sum(answers) == 2, "one invoice for each customer, however often the runner calls"
    billed = """
        SELECT sum(quantity)::int FROM invoice JOIN invoice_line ON id = invoice_id
        WHERE billed_month = %s AND customer_id = ANY (%s) GROUP BY id
    """
    assert site.rows(billed, month, customers) == [(2,), (2,)], "the lesson of this month is not billed yet"


async def test_a_lesson_that_is_recorded_late_is_billed_with_its_own_month(office: Office) -> None:
    site = office.site
    month = last_month(datetime.now(Config.time_zone).date())
    before = last_month(month)
    [customer_id], class_id = await _class_of(site, 1)
    async with site.user("teacher") as teacher, site.guest() as runner:
        for day in (month, before, before + timedelta(days=7)):
            assert await _attended(teacher, class_id, customer_id, day) == 204
        assert (await runner.post("/internal/classes-billing", json={}, headers=site.service)).json() == {"billed": 1}
    lines = """
        SELECT description, quantity::int FROM invoice JOIN invoice_line ON id = invoice_id
        WHERE customer_id = %s ORDER BY position
    """
    assert site.rows(lines, customer_id) == [(f"Piano, {before:%B %Y}", 2), (f"Piano, {month:%B %Y}", 1)]


async def _class_of(site: Site, number: int) -> tuple[list[int], int]:
    """Add so many customers and a class, and return their ids."""
    async with site.user() as client:
        customers = [(await client.post("/customers", json=ADA)).json()["id"] for _ in range(number)]
        piano = {"name": "Piano", "lessonPrice": "40.00", "taxRate": "0"}
        return customers, (await client.post("/classes", json=piano)).json()["id"]


async def _attended(teacher: httpx.AsyncClient, class_id: int, customer_id: int, day: date) -> int:
    body = {"customerId": customer_id, "attendedOn": day.isoformat()}
    return (await teacher.post(f"/classes/{class_id}/attendance", json=body)).status_code


async def test_an_overdue_invoice_is_reminded_of_once_a_day(office: Office) -> None:
    site = office.site
    async with site.user() as client, site.guest() as runner:
        late, paid = [await issued(client, to=f"{name}@example.org") for name in ("late", "paid")]
        site.execute("UPDATE invoice SET due_on = current_date - 3 WHERE id IN (%s, %s)", late["id"], paid["id"])
        assert (await client.post(f"/invoices/{paid['id']}/pay")).json()["status"] == "PAID"
        calls = [runner.post("/internal/invoice-reminders", json={}, headers=site.service) for _ in range(3)]
        # None, if the runner of the worker was first.
        assert sum(answer.json()["reminded"] for answer in await asyncio.gather(*calls)) <= 1
    mails = await asyncio.to_thread(site.mailbox.wait_for, "late@example.org", 2)
    assert sorted(mail["subject"] for mail in mails) == [
        f"Invoice {late['number']}",
        f"Reminder of invoice {late['number']}",
    ]
    assert site.value("SELECT count(*) FROM email_delivery WHERE invoice_id = %s", late["id"]) == 2


async def test_a_job_that_records_something_about_an_invoice_does_not_put_off_its_reminder(office: Office) -> None:
    site = office.site
    async with site.user() as client, site.guest() as runner:
        invoice = await issued(client, to="booked@example.org")
        with psycopg.connect(site.database) as job:
            # Not committed yet. Its foreign key locks the invoice.
            job.execute("INSERT INTO email_delivery VALUES ('booked', %s, 'booked@example.org')", [invoice["id"]])
            site.execute("UPDATE invoice SET due_on = current_date - 3 WHERE id = %s", invoice["id"])
            await runner.post("/internal/invoice-reminders", json={}, headers=site.service)
            assert site.value("SELECT reminded_on IS NOT NULL FROM invoice WHERE id = %s", invoice["id"])
            job.rollback()


async def test_the_worker_calls_the_endpoints(office: Office) -> None:
    """Both runners ran when the worker started, with the token of the services. Idle runs are not recorded."""
    assert office.site.value(RUNNERS_RAN) == 2
    failed = "SELECT count(*) FROM holdfast.run WHERE error_code IS NOT NULL AND runner IN (%s, %s)"
    assert office.site.value(failed, "invoiceReminders", "classesBilling") == 0


def test_the_migrations_make_the_tables_of_the_code(site: Site) -> None:
    engine = create_engine(settings(site.database).attributes["url"])
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
