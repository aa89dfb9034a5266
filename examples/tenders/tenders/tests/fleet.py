"""Worker processes, a local server of their own, and what both have in the end."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from tenders.local.server import variables
from tests.kit.commands import Output, Running, holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

EXAMPLE = Path(__file__).parents[2]
"""The folder from which workers are started."""
TERMINAL = {"ok", "failed", "invalid"}
# Minutes become hundredths of a second, so that a test sees all attempts.
QUICK = {
    "WORKER_INTERVAL_MINUTES": "0.01",
    "DISPATCH_INTERVAL_MINUTES": "0.005",
    "RECEIPT_INTERVAL_MINUTES": "0.005",
    "BACKOFF_MINUTES": "0.002,0.004,0.006,0.008,0.01,0.02",
    "HTTP_TIMEOUT_SECONDS": "0.4",
    "HOLDFAST_LEASE_MS": "2000",
    "HOLDFAST_HEARTBEAT_MS": "400",
    "HOLDFAST_REAP_INTERVAL_MS": "300",
    "HOLDFAST_IDLE_MIN_MS": "50",
    "HOLDFAST_IDLE_MAX_MS": "300",
    "HOLDFAST_BUSY_DELAY_MS": "20",
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "2000",
    "HOLDFAST_LOG_LEVEL": "warning",
}


class LocalProcess(Running):
    """The market and the provider, in a process of their own."""

    def __init__(self, *, tenders: int = 0, seed: int = 7) -> None:
        options = ("--port", "0", "--tenders", str(tenders), "--seed", str(seed))
        super().__init__(*options, database="", cwd=EXAMPLE, program=("-m", "tenders.local.server"))
        [line] = self.wait_for_line("Uvicorn running on")
        found = re.search(r"http://127\.0\.0\.1:\d+", str(line["message"]))
        assert found
        self.address = found[0]

    def control(self, **change: Any) -> dict[str, Any]:
        answer = httpx.post(f"{self.address}/control", json=change).raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown

    def pushes(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = httpx.get(f"{self.address}/control/pushes", timeout=30).json()["pushes"]
        return found

    @property
    def variables(self) -> dict[str, str]:
        return QUICK | variables(self.address)


def worker(local: LocalProcess, database: str, cwd: Path = EXAMPLE) -> Running:
    """Start a worker, as `holdfast worker` does in production."""
    return Running("worker", "tenders.app:app", database=database, cwd=cwd, **local.variables)


def tick(local: LocalProcess, database: str, cwd: Path = EXAMPLE, **variables: str) -> Output:
    """Run every runner once, as cron does."""
    return holdfast("tick", "tenders.app:app", database=database, cwd=cwd, **(local.variables | variables))


class Books(NamedTuple):
    """The ends of all deliveries, and the pushes for them."""

    statuses: Counter[str]
    pushes: int
    """Pushes that the provider got."""
    again: int
    """Of these, pushes of a delivery that it had got before."""
    attempts: int


class Ledger:
    """A connection that looks at the deliveries."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def value(self, query: str) -> Any:
        row = self.conn.execute(query.encode()).fetchone()
        return row and row[0]

    @property
    def ended(self) -> int:
        return int(self.value("SELECT count(*) FROM notification_deliveries WHERE completed_at IS NOT NULL"))

    @property
    def deliveries(self) -> int:
        return int(self.value("SELECT count(*) FROM notification_deliveries"))

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait for a state."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.state()
            self.conn.execute("SELECT pg_sleep(0.02)")

    def state(self) -> str:
        rows = self.conn.execute(
            "SELECT status, attempt_count, last_error_code, count(*) FROM notification_deliveries GROUP BY 1, 2, 3 "
            "LIMIT 50"
        ).fetchall()
        jobs = self.conn.execute("SELECT kind, status, count(*) FROM holdfast.job GROUP BY 1, 2 LIMIT 50").fetchall()
        return f"deliveries {rows}, jobs {jobs}"

    def close_books(self, local: LocalProcess) -> Books:
        """Fail unless every delivery has ended, and the provider agrees with its row."""
        rows = self.conn.execute(
            "SELECT d.delivery_key::text, d.status, d.attempt_count, d.provider_ticket_id, d.provider_receipt_id, "
            "i.push_token, l.codigo_externo, l.notificada, d.completed_at IS NOT NULL FROM notification_deliveries d "
            "JOIN device_installations i USING (installation_id) "
            "JOIN notification_events e ON e.id = d.notification_event_id JOIN licitaciones l ON l.id = e.licitacion_id"
        ).fetchall()
        taken = local.pushes()
        ids: dict[tuple[str, str], set[str]] = {}
        tickets: dict[str, str] = {}
        for push in taken:
            ids.setdefault((push["to"], push["codigo"]), set()).add(push["id"])
            if push["ticket"]:
                tickets[push["ticket"]] = push["id"]
        for key, status, _, ticket, receipt, token, codigo, notified, ended in rows:
            assert status in TERMINAL, (key, status)
            assert ended
            assert ids.get((token, codigo), {key}) == {key}, "a delivery has one id, however often it is sent"
            if ticket is not None:
                assert tickets[ticket] == key, "the ticket is one of this delivery"
                assert notified
            if status == "ok":
                assert receipt == ticket is not None, "the receipt is that of the ticket"
        assert self.value("SELECT count(*) FROM holdfast.job WHERE kind LIKE 'delivery.%'") == 0, "no job is left"
        assert self.value("SELECT count(*) FROM holdfast.job_failed") == 0, "and none has failed"
        return Books(
            Counter(row[1] for row in rows),
            len(taken),
            len(taken) - len({push["id"] for push in taken}),
            sum(row[2] for row in rows),
        )
