"""The application under load: restarted, redeployed with a changed payload, and moved to cron. Nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from examples.invoicing.tests.site import EXAMPLE, issued

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from examples.invoicing.tests.site import Site

pytestmark = pytest.mark.nightly

T = TypeVar("T")

AT_ONCE = 6
PATIENCE = 120.0
LIVE = "SELECT count(*) FROM holdfast.job"
# Each of the load's invoices, and what there must be of it.
DONE = """
    SELECT count(*), count(document.key), count(DISTINCT delivery.sent_at), count(tax_snapshot), count(ledger_entry)
    FROM invoice
    LEFT JOIN document ON document.invoice_id = invoice.id
    LEFT JOIN email_delivery AS delivery ON delivery.invoice_id = invoice.id
    LEFT JOIN tax_snapshot ON tax_snapshot.invoice_id = invoice.id
    LEFT JOIN ledger_entry ON ledger_entry.invoice_id = invoice.id
    WHERE invoice.status = 'ISSUED'
"""
# Jobs with a payload of version 1, which is stored as null, that this worker ran.
OLD_BY_NEW = """
    SELECT count(*) FROM holdfast.job_history JOIN holdfast.worker ON worker.id = worker_id
    WHERE kind LIKE 'invoice.pdf%%' AND payload_version IS NULL AND worker.name LIKE %s
"""
RENDERED = "SELECT DISTINCT coalesce(payload_version, 1) FROM holdfast.job_history WHERE kind LIKE 'invoice.pdf%%'"
# The release before: its payload was spelled otherwise.
BEFORE = {
    "    version=2,\n": "",
    'unique=Unique.by("invoice_id"),\n    max_runtime': 'unique=Unique.by("invoiceId"),\n    max_runtime',
    "async def render_pdf(job: Job[Services], invoice_id: int) -> Pdf | Fail:\n": (
        "async def render_pdf(job: Job[Services], invoiceId: int) -> Pdf | Fail:\n    invoice_id = invoiceId\n"
    ),
    "@render_pdf.upgrade(from_version=1)\n": "",
}


class Load:
    """An office that issues invoices, a few at a time, and customers who each wait until they have their PDF."""

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._number = number
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._changed = asyncio.Condition()
        self.ready = 0

    def start(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._run(name))

    async def until(self, ready: int) -> None:
        """Return when so many invoices have their PDF."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.ready >= ready)

    async def _run(self, name: str) -> None:
        async with self._site.user() as client, asyncio.TaskGroup() as tasks:
            for number in range(self._number):
                tasks.create_task(self._customer(client, f"{name}-{number}@example.org"))

    async def _customer(self, client: httpx.AsyncClient, email: str) -> None:
        async with self._at_once:
            invoice = await _insist(lambda: issued(client, to=email))
            while (await _insist(lambda: self._waited(client, invoice))) != 200:
                pass
        async with self._changed:
            self.ready += 1
            self._changed.notify_all()

    async def _waited(self, client: httpx.AsyncClient, invoice: dict[str, Any]) -> int:
        answer = await client.get(f"/invoices/{invoice['id']}/pdf?waitMs=10000")
        return answer.raise_for_status().status_code


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again if the API is just being restarted, as a client does: it does not answer, or with a status of 500."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except httpx.TransportError:
            pass
        except httpx.HTTPStatusError as error:
            if not error.response.is_server_error:
                raise
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


@pytest.fixture
def release_before(tmp_path: Path) -> Path:
    """The code of the release before this one."""
    shutil.copytree(EXAMPLE / "invoicing", tmp_path / "invoicing", ignore=shutil.ignore_patterns("__pycache__"))
    jobs = tmp_path / "invoicing" / "jobs.py"
    code = jobs.read_text()
    for new, old in BEFORE.items():
        assert code.count(new) == 1, new
        code = code.replace(new, old)
    jobs.write_text(code)
    return tmp_path


@pytest.mark.parametrize("number", [8, pytest.param(200, marks=pytest.mark.prove)])
async def test_nothing_is_lost(site: Site, release_before: Path, number: int) -> None:
    """The steps follow one another while invoices are issued and waited for."""
    load = Load(site, number)
    with ExitStack() as before, ExitStack() as after:
        api = before.enter_context(site.api(release_before))
        worker = before.enter_context(site.worker(release_before))
        first = load.start("first")

        # Restarted politely, and then not.
        await load.until(number // 4)
        worker.signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.ended) == 0
        worker = before.enter_context(site.worker(release_before))
        await load.until(number // 2)
        worker.signal(signal.SIGKILL)
        await asyncio.to_thread(worker.ended)

        # Redeployed: first the worker, which then runs jobs of the release before, and then the API.
        newer = after.enter_context(site.worker())
        await first
        assert site.value(OLD_BY_NEW, f"%:{newer.process.pid}:%") > 0
        second = load.start("second")
        await load.until(number + number // 4)
        api.signal(signal.SIGTERM)
        await asyncio.to_thread(api.ended)
        after.enter_context(site.api())
        await load.until(number + number // 2)

        # Moved to cron: no worker, and a tick now and then.
        newer.signal(signal.SIGTERM)
        assert await asyncio.to_thread(newer.ended) == 0
        third = load.start("third")
        while not (second.done() and third.done()):
            output = await asyncio.to_thread(site.tick)
            assert output.status == 0, output.err
        await asyncio.gather(second, third)
        while site.value(LIVE):
            assert (await asyncio.to_thread(site.tick)).status == 0

    issued_ones = 3 * number
    assert load.ready == issued_ones
    counts = site.rows(DONE)[0]
    assert counts == (counts[0],) * 5, "issued, rendered, mailed, its taxes written, booked"
    assert counts[0] >= issued_ones
    assert site.value("SELECT count(*) FROM holdfast.job_failed") == 0
    assert sorted(site.rows(RENDERED)) == [(1,), (2,)], "jobs of both releases were run"
    _check_mails(site, number)


def _check_mails(site: Site, number: int) -> None:
    """Each customer has one mail. Those that the killed worker sent and did not record came again, with the same id."""
    again = 0
    for name in ("first", "second", "third"):
        for customer in range(number):
            mails = site.mailbox.to(f"{name}-{customer}@example.org")
            subjects = Counter(mail["subject"] for mail in mails)
            assert subjects
            assert len({mail["message-id"] for mail in mails}) == len(subjects)
            again += len(mails) - len(subjects)
    assert again <= 10, "no more than one worker runs at once"
