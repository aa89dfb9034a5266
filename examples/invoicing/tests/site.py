"""The application as it runs: an API and workers in processes of their own, real servers, and people who use it."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import psycopg
from aiosmtpd.controller import Controller

from tests.kit.commands import PATIENCE, Running, environment, holdfast
from tests.kit.plain_http import NO_AUTHORITIES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from email.message import EmailMessage

    from aiosmtpd.smtp import SMTP, Envelope, Session

    from tests.kit.commands import Output

EXAMPLE = Path(__file__).parent.parent
APP = "invoicing.jobs:app"
# The API has its own login, so that its statements can be counted.
API_ROLE = "invoicing_api"
# Requests that wait for a PDF do not hold up a restart for long.
GRACEFUL = ("--timeout-graceful-shutdown", "1")
# An answer that waits for a PDF comes after 30 seconds at the latest.
ANSWER_SECONDS = 60.0
# Each runner runs once when the first worker starts, and then not for a while.
RUNNERS_RAN = """
    SELECT count(*) FROM holdfast.schedule
    WHERE name IN ('invoiceReminders', 'classesBilling') AND last_at IS NOT NULL AND slot_at IS NULL
"""
# Every worker has beaten since. One that was killed does not beat.
BEATEN = """
    SELECT bool_and(heartbeat_at > %s) FROM holdfast.worker
    WHERE stopped_at IS NULL AND heartbeat_at > now() - interval '5 seconds'
"""
ADA = {"name": "Ada Lovelace", "email": "ada@example.org", "address": "12 St James's Square\nLondon"}
LESSON = {"description": "Piano lesson", "quantity": "2", "unitPrice": "45.50", "taxRate": "19"}


class Mailbox:
    """A mail server that keeps what it gets. `before_answer` is called with each mail before it is acknowledged.

    An address in `unanswered` gets its next mail, but the connection is lost before the answer.
    """

    def __init__(self) -> None:
        self.unanswered: set[str] = set()
        self.before_answer: Callable[[EmailMessage], object] = lambda _: None
        self._mails: list[EmailMessage] = []
        self._arrived = threading.Condition()

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        content = envelope.content
        assert isinstance(content, bytes)
        mail: EmailMessage = message_from_bytes(content, policy=default)
        with self._arrived:
            self._mails.append(mail)
            self._arrived.notify_all()
        await asyncio.to_thread(self.before_answer, mail)
        if mail["to"] in self.unanswered:
            self.unanswered.remove(mail["to"])
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"

    def to(self, address: str) -> list[EmailMessage]:
        with self._arrived:
            return [mail for mail in self._mails if mail["to"] == address]

    def wait_for(self, address: str, number: int = 1) -> list[EmailMessage]:
        """Return the mails to this address when there are so many."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.to(address)) >= number, PATIENCE), self.to(address)
            return self.to(address)

    @contextmanager
    def serving(self, port: int) -> Iterator[str]:
        controller = Controller(self, hostname="127.0.0.1", port=port)
        controller.start()
        try:
            yield f"smtp://127.0.0.1:{port}"
        finally:
            controller.stop()


@dataclass
class Site:
    """One database and what runs on it. `variables` are those of the environment."""

    database: str
    variables: dict[str, str]
    mailbox: Mailbox
    address: str = ""
    serving: Running | None = None
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @contextmanager
    def api(self, release: Path = EXAMPLE, **variables: str) -> Iterator[Running]:
        """Run the API while the block runs. `address` is where it answers, also after a restart."""
        port = self.address.rpartition(":")[2] or "0"
        web = ("-m", "uvicorn", "--factory", "invoicing.web:create", "--port", port, *GRACEFUL)
        database = self.database.replace("postgres@", f"{API_ROLE}@")
        with Running(database=database, cwd=release, program=web, **self._environment(**variables)) as running:
            [line] = running.wait_for_line("running on")
            self.address = str(line["message"]).partition("running on ")[2].split()[0]
            self.serving = running
            yield running

    @contextmanager
    def worker(self, release: Path = EXAMPLE, **variables: str) -> Iterator[Running]:
        with Running("worker", APP, database=self.database, cwd=release, **self._environment(**variables)) as running:
            running.wait_for_line("worker started")
            yield running

    def command(self, *arguments: str) -> str:
        """Run a command of invoicing, which has only the database, and return what it printed."""
        command = [sys.executable, "-m", "invoicing", *arguments]
        variables = environment(self.database)
        ended = subprocess.run(  # noqa: S603 - the command under test
            command, cwd=EXAMPLE, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def run(self, *arguments: str) -> Output:
        """Run a command of Holdfast."""
        output = holdfast(*arguments, database=self.database, cwd=EXAMPLE)
        assert output.status == 0, output.err
        return output

    def tick(self, **variables: str) -> Output:
        """Run every runner once, as a cron job does."""
        return holdfast("tick", APP, "--json", database=self.database, cwd=EXAMPLE, **self._environment(**variables))

    def _environment(self, **variables: str) -> dict[str, str]:
        called = {"WORKER_API_BASE_URL": self.address} if self.address else {}
        return {**self.variables, "WORKER_API_SERVICE_TOKEN": self._token, **called, **variables}

    @property
    def service(self) -> dict[str, str]:
        """The header with which the runners call."""
        return {"x-service-token": self._token}

    @asynccontextmanager
    async def user(self, role: str = "owner") -> AsyncIterator[httpx.AsyncClient]:
        """Sign in as a person with this role."""
        async with self.guest() as client:
            answer = await client.get(f"/login/{self._login_code(role)}")
            assert answer.status_code == 303, answer.text
            yield client

    @asynccontextmanager
    async def guest(self) -> AsyncIterator[httpx.AsyncClient]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self.address, timeout=ANSWER_SECONDS, limits=limits, trust_env=False, verify=NO_AUTHORITIES
        ) as client:
            try:
                yield client
            except Exception as error:
                error.add_note("".join(self.serving.messages()[-100:]) if self.serving else "")
                raise

    def _login_code(self, role: str) -> str:
        code = secrets.token_urlsafe(32)
        with psycopg.connect(self.database) as conn:
            user = "INSERT INTO app_user (email, role) VALUES (%s, %s) ON CONFLICT (email) DO UPDATE SET role = %s"
            [user_id] = conn.execute(f"{user} RETURNING id", [f"{role}@example.org", role, role]).fetchone() or [0]
            link = "INSERT INTO login_link (digest, user_id, expires_at) VALUES (%s, %s, now() + interval '1 hour')"
            conn.execute(link, [sha256(code.encode()).hexdigest(), user_id])
        return code

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def value(self, query: str, *values: object) -> Any:
        [[value]] = self.rows(query, *values)
        return value

    def execute(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.database, autocommit=True) as conn:
            conn.execute(statement.encode(), values)

    def wait_for(self, query: str, expected: object = True, *values: object) -> None:
        """Wait until a query has this value."""
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.database, autocommit=True) as conn:
            while (found := conn.execute(query.encode(), values).fetchone()) != (expected,):
                assert time.monotonic() < deadline, f"{query}: {found}"
                time.sleep(0.02)


class Office:
    """A site with an API and a worker that run."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.worker: Running
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        self._ends.enter_context(self.site.api())
        self.start_worker()
        self.site.wait_for(RUNNERS_RAN, 2)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def start_worker(self) -> None:
        self.worker = self._ends.enter_context(self.site.worker())

    def reset(self) -> None:
        """Undo what a test that failed may have left."""
        self.site.mailbox.before_answer = lambda _: None
        self.site.execute("DELETE FROM holdfast.queue")
        if self.worker.process.poll() is not None:
            self.start_worker()

    @contextmanager
    def paused(self, queue: str) -> Iterator[None]:
        """Let the jobs of a queue wait. A worker knows it with its next heartbeat."""
        self.site.run("queues", "pause", queue)
        self.site.wait_for(BEATEN, True, self.site.value("SELECT clock_timestamp()"))
        try:
            yield
        finally:
            self.site.run("queues", "resume", queue)


async def issued(client: httpx.AsyncClient, to: str = ADA["email"], **line: str) -> dict[str, Any]:
    """Add a customer, write an invoice and issue it, as a person of the office does."""
    customer = await _created(client, "/customers", {**ADA, "email": to})
    draft = await _created(client, "/invoices", {"customerId": customer["id"], "lines": [LESSON | line]})
    answer = await client.post(f"/invoices/{draft['id']}/issue")
    invoice: dict[str, Any] = answer.raise_for_status().json()
    return invoice


async def _created(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    created: dict[str, Any] = answer.raise_for_status().json()
    return created
