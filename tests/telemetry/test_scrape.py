"""A real Prometheus scrapes a real worker, and is asked what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.commands import Running
from tests.kit.workers import enqueue, job
from tests.telemetry.asking import wait_until
from tests.telemetry.test_monitoring import RULES
from tools.ports import free_port
from tools.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]

pytestmark = pytest.mark.nightly


OUTCOMES = [
    ("order.pack", "completed", 200),
    ("order.refuse", "failed", 3),
    ("order.spoil", "retry", 2),
    ("order.spoil", "failed", 1),
]


def test_prometheus_has_what_two_processes_did(database: str, shop: Path, connect: Connect) -> None:
    port = free_port(2)
    conn = connect()
    with Running("worker", "shop:app", "--processes", "2", "--http", f"127.0.0.1:{port}", database=database, cwd=shop):
        for place in range(2):
            wait_until(port + place, "/ready", lambda answer: answer.status == 200)
        targets = [f"127.0.0.1:{port + place}" for place in range(2)]
        with Prometheus(targets, rules=[RULES]) as prometheus:
            prometheus.wait_for("count(holdfast_worker_up == 1) == 2")
            enqueue(
                conn,
                *(job("order.pack", queue="packing") for _ in range(200)),
                *(job("order.refuse") for _ in range(3)),
                job("order.spoil"),
            )
            for kind, outcome, jobs in OUTCOMES:
                counted = f'holdfast_processed_total{{kind="{kind}", outcome="{outcome}"}}'
                prometheus.wait_for(f"sum({counted}) == {jobs}")
            prometheus.wait_for("sum(holdfast_processed_total) == 206")
            prometheus.wait_for("sum(holdfast_dead_letter_total) == 4")
            prometheus.wait_for("sum(holdfast_retried_total) == 2")
            prometheus.wait_for("sum(holdfast_attempt_duration_seconds_count) == 206")
            prometheus.wait_for('sum(holdfast_tick_processed_sum{runner="outbox"}) == 206')
            prometheus.wait_for("sum(holdfast_held) == 0")
            assert prometheus.wait_for("min(holdfast_reaper_runs_total) >= 1")
            types = prometheus.ask("metadata", metric="holdfast_attempt_duration_seconds")
            assert types["holdfast_attempt_duration_seconds"][0]["type"] == "histogram"
            [group] = prometheus.ask("rules")["groups"]
            assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
            # Nobody is scraped who tells of the fleet: that is pending for its five minutes.
            prometheus.wait_for('ALERTS{alertname="HoldfastFleetUnknown", alertstate="pending"}')
