"""The steps by which a customer changes the database, as the page on many databases gives them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.cli.shop import GATE
from tests.kit.commands import PATIENCE, Running, holdfast
from tests.kit.databases import clone
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    from pathlib import Path

    from tools.postgres import Server

pytestmark = pytest.mark.nightly


def test_a_customer_changes_the_database(database: str, server: Server, template: str, shop: Path) -> None:
    with (
        clone(server, template) as other,
        psycopg.connect(database, autocommit=True) as old,
        psycopg.connect(other, autocommit=True) as new,
    ):
        both = f"us={database} eu={other}"

        def say(*arguments: str) -> Any:
            output = holdfast(*arguments, "--json", HOLDFAST_DATABASE_URL=both)
            assert output.status == 0, output.err
            return output.json

        def left(*statuses: str) -> int:
            listing = ("jobs", "list", "--database", "us", "--order-key", "customer-7", "--status")
            return sum(len(say(*listing, status)) for status in statuses)

        old.execute("SELECT pg_advisory_lock(%s)", [GATE])
        enqueue(old, job("gated").options(order_key="customer-7"), job("quick").options(order_key="customer-7"))
        # A queue can be paused once there is a job in it, or a worker that serves it.
        enqueue(new, job("quick").options(order_key="customer-7"))
        say("queues", "pause", "default", "--database", "eu")
        with Running(
            "worker", "shop:app", database=None, cwd=shop, HOLDFAST_DATABASE_URL=both, GATE_URL=database
        ) as worker:
            worker.wait_for_line("gated")
            assert left("processing") == 1
            assert left("pending", "blocked") == 1

            old.execute("SELECT pg_advisory_unlock(%s)", [GATE])
            assert worker.wait_for_line("quick")[0]["database"] == "us"
            deadline = time.monotonic() + PATIENCE
            while left("pending", "blocked", "processing"):
                assert time.monotonic() < deadline
            assert new.execute("SELECT status FROM holdfast.job").fetchall() == [("pending",)]

            say("queues", "resume", "default", "--database", "eu")
            assert worker.wait_for_line("quick")[0]["database"] == "eu"
