"""The shop, alive: a database, a broker, a worker process under load, a server process, and tokens of each role."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import psycopg

from holdfast._ops.caller import Role
from tests.browser import shop
from tests.browser.process import Process
from tests.kit.commands import PATIENCE, holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from nats.js import JetStreamContext

    from holdfast import NewJob
    from tools.nats import NatsServer

APP = "tests.browser.shop:app"
NAMES = {Role.VIEWER: "vera", Role.OPERATOR: "oskar", Role.DEVELOPER: "dora"}
DAY = timedelta(days=1)
# Whatever the worker does is noticed within a test.
PACE = {
    "HOLDFAST_LEASE_MS": "6000",
    "HOLDFAST_HEARTBEAT_MS": "500",
    "HOLDFAST_REAP_INTERVAL_MS": "1000",
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "500",
    "HOLDFAST_IDLE_MIN_MS": "100",
    "HOLDFAST_IDLE_MAX_MS": "500",
    "HOLDFAST_JITTER_MS": "0",
    "HOLDFAST_BUSY_DELAY_MS": "50",
    "HOLDFAST_ERROR_BACKOFF_MS": "100",
    "HOLDFAST_ERROR_JITTER_MS": "0",
    "HOLDFAST_QUEUE_CONCURRENCY": "pdf=4",
    "HOLDFAST_BATCH_SIZE": "200",  # enough for the free slots of every queue at once
}


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


@dataclass(frozen=True)
class Site:
    """A server process, and who may come in."""

    url: str
    database: str
    tokens: Mapping[Role, str]
    process: Process


@dataclass
class Live:
    """The shop's worker and its site; what is enqueued here is really run."""

    database: str
    site: Site
    worker: Process
    nats: NatsServer
    conn: psycopg.Connection[Any]

    def enqueue(self, *jobs: NewJob[Any]) -> list[int]:
        return [handle.id for handle in shop.app.sync.enqueue_many(self.conn, jobs)]

    def wait(self, *jobs: NewJob[Any], delay: timedelta = DAY) -> list[int]:
        """Enqueue jobs whose time is far off, so that they wait."""
        return self.enqueue(*(job.options(delay=delay) for job in jobs))

    def declare(self, name: str, **values: int) -> None:
        """Declare a limit, as the code of a worker does."""
        rule = {"concurrency": None, "starts": None, "period_ms": None, "burst": 1, "parameters": None, **values}
        self.conn.execute("SELECT holdfast.declare_limits(%s)", [json.dumps({name: rule})])

    def pay(self, *invoices: int, note: str = "", key: str | None = None) -> list[int]:
        events = [
            shop.paid.new(shop.InvoicePaid(invoice, 100 + invoice, note), key=key or str(invoice))
            for invoice in invoices
        ]
        return shop.app.sync.publish_many(self.conn, events)

    def statuses(self, ids: Sequence[int]) -> list[str]:
        """Return what became of each job; `gone` when it was deleted."""
        found = dict(
            self.conn.execute(
                "SELECT id, status::text FROM holdfast.job WHERE id = ANY(%(ids)s) "
                "UNION ALL SELECT id, status::text FROM holdfast.job_history WHERE id = ANY(%(ids)s) "
                "UNION ALL SELECT id, status::text FROM holdfast.job_failed WHERE id = ANY(%(ids)s)",
                {"ids": list(ids)},
            ).fetchall()
        )
        return [found.get(job_id, "gone") for job_id in ids]

    def until_all(self, ids: Sequence[int], status: str) -> None:
        until(lambda: set(self.statuses(ids)) == {status}, f"jobs {ids} are {status}, not {self.statuses(ids)}")

    def ended(self, kind: str) -> int:
        """Return how many jobs of a kind have ended well."""
        row = self.conn.execute(
            "SELECT count(*) FROM holdfast.job_history WHERE kind = %s AND status = 'completed'", [kind]
        ).fetchone()
        return int(row[0]) if row else 0

    def until_ended(self, kind: str, times: int) -> None:
        until(lambda: self.ended(kind) >= times, f"{times} jobs of {kind} have ended")
        assert self.ended(kind) == times

    def until_run(self, runner: str, outcome: str) -> None:
        newest = "SELECT outcome FROM holdfast.run WHERE runner = %s ORDER BY id DESC LIMIT 1"
        until(lambda: self.conn.execute(newest, [runner]).fetchone() == (outcome,), f"{runner} {outcome}")

    def until_parked(self, key: str, events: int) -> None:
        parked = "SELECT count(*) FROM holdfast.parked WHERE key = %s"
        until(lambda: self.conn.execute(parked, [key]).fetchone() == (events,), f"{events} events of {key} are parked")

    def cancel_all(self, kind: str) -> None:
        """Call off what waits or runs, and wait until it has ended."""
        for (job_id,) in self.conn.execute("SELECT id FROM holdfast.job WHERE kind = %s", [kind]).fetchall():
            shop.app.sync.cancel(self.conn, job_id)
        left = "SELECT count(*) FROM holdfast.job WHERE kind = %s"
        until(lambda: self.conn.execute(left, [kind]).fetchone() == (0,), f"no job of {kind} is left")

    @contextmanager
    def outage(self, bank: str, why: str = "the bank does not answer") -> Iterator[None]:
        self.conn.execute("INSERT INTO outage VALUES (%s, %s)", [bank, why])
        try:
            yield
        finally:
            self.conn.execute("DELETE FROM outage WHERE bank = %s", [bank])

    def fail(self, bank: str, invoices: Sequence[int]) -> list[int]:
        """Make dead letters whose error code is `<bank>Outage`; the bank answers again afterwards."""
        with self.outage(bank):
            ids = self.enqueue(*(shop.charge_card.new(invoice, bank) for invoice in invoices))
            self.until_all(ids, "failed")
        return ids


def customer(number: int) -> list[NewJob[Any]]:
    """Return what one customer causes."""
    return [
        shop.send_mail.new(f"customer{number}@example.org", f"Order {number}", "hush"),
        shop.render.new(number, pages=1 + number % 3),
        shop.check_order.new(number),
    ]


class Storefront(threading.Thread):
    """A customer every so many seconds, so that the worker is never without jobs."""

    def __init__(
        self, database: str, every: float, customer: Callable[[int], Sequence[NewJob[Any]]] = customer
    ) -> None:
        super().__init__(name="storefront", daemon=True)
        self._database = database
        self._every = every
        self._customer = customer
        self._closed = threading.Event()

    def run(self) -> None:
        number = 0
        with psycopg.connect(self._database, autocommit=True) as conn:
            while not self._closed.wait(self._every):
                number += 1
                shop.app.sync.enqueue_many(conn, self._customer(number))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.join(PATIENCE)


def working(database: str, nats: NatsServer, folder: Path) -> Process:
    return Process("worker", APP, database=database, log=folder / "worker.log", SHOP_NATS_URL=nats.url, **PACE)


@contextmanager
def serving(
    database: str,
    folder: Path,
    *,
    port: int = 0,
    tokens: Mapping[Role, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """Serve on a free port, unless one is given. `more`: variables of the process."""
    log = folder / "serve.log"
    with Process("serve", "--port", str(port), database=database, log=log, **(more or {})) as process:
        url = process.wait_for_line("Serving on ")
        yield Site(url, database, make_tokens(database) if tokens is None else tokens, process)


def make_tokens(database: str) -> dict[Role, str]:
    """Make them as a person does."""
    made = {}
    for role, name in NAMES.items():
        output = holdfast("tokens", "make", name, "--role", role, database=database)
        assert output.status == 0, output.err
        made[role] = output.out.strip()
    return made


async def add_stream(nats: NatsServer) -> None:
    """Let JetStream take what the relay publishes, but nothing large."""
    async with _jetstream(nats) as stream:
        await stream.add_stream(name="shop", subjects=["shop.>"], max_msg_size=shop.LARGEST_EVENT)


async def change_stream(nats: NatsServer, **config: Any) -> None:
    async with _jetstream(nats) as stream:
        await stream.update_stream((await stream.stream_info("shop")).config, **config)


@asynccontextmanager
async def _jetstream(nats: NatsServer) -> AsyncIterator[JetStreamContext]:
    from nats import connect

    client = await connect(nats.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@contextmanager
def opened(database: str, nats: NatsServer, folder: Path) -> Iterator[Live]:
    """Open the shop in a migrated database, to a broker that has its stream."""
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(database, autocommit=True))
        conn.execute("CREATE TABLE outage (bank text PRIMARY KEY, why text NOT NULL)")
        worker = stack.enter_context(working(database, nats, folder))
        site = stack.enter_context(serving(database, folder))
        until(
            lambda: conn.execute("SELECT true FROM holdfast.worker WHERE reaped_at IS NOT NULL").fetchone(),
            f"the worker works: {worker.errors}",
        )
        yield Live(database, site, worker, nats, conn)
