from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Limit
from holdfast._drivers import run_sync
from holdfast._store.limit import declare_limits
from tests.cli.auditing import ME, audited
from tests.kit.commands import holdfast
from tests.kit.limits import limited, parked
from tests.kit.workers import Worker, enqueue

if TYPE_CHECKING:
    import psycopg


def test_an_empty_database_has_none(database: str) -> None:
    assert holdfast("limits", database=database).out == "No worker has declared a limit.\n"


def test_list_set_and_reset(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    run_sync(conn, declare_limits({"api": Limit(concurrency=1, rate="100/min", burst=3, by="customer")}))
    made = enqueue(conn, *[limited("api:7") for _ in range(4)])
    worker.claim()
    head, line = holdfast("limits", database=database).out.splitlines()
    assert head.split()[:5] == ["NAME", "BY", "CONCURRENCY", "RATE", "BURST"]
    assert line.split()[:7] == ["api", "customer", "1", "100/min", "3", "1", "3"]
    show = holdfast("jobs", "show", str(made[-1]), database=database).out
    assert (
        "It waits for a limit: 1 of 1 of limit api for customer 7 are taken, and at most 100/min of limit api" in show
    )
    assert "and 2 wait before it." in show

    output = holdfast("limits", "set", "api", "--concurrency", "2", "--rate", "any", database=database)
    assert output == (0, "api: in force for the next claim; what runs goes on\n", "")
    # What has room by now was promoted.
    assert len(parked(conn)) == 2
    assert len(worker.claim()) == 1
    listed = holdfast("limits", "list", "--json", database=database).json["items"]
    assert (listed[0]["concurrency"], listed[0]["rate"], listed[0]["set_by"]) == (2, None, ME)
    assert holdfast("limits", "reset", "api", database=database).out == "api: as the code declares it\n"
    assert holdfast("limits", "--json", database=database).json["items"][0]["rate"] == "100/min"
    assert [line[:3] for line in audited(conn)] == [(ME, "limit.set", "api"), (ME, "limit.reset", "api")]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["set", "nothing", "--concurrency", "1"], 1, "No limit is named nothing."),
        (["reset", "nothing"], 1, "No limit that code declares is named nothing."),
        (["set", "api"], 2, "nothing to set for api: give --concurrency or --rate"),
        (["set", "api", "--rate", "many"], 2, "expected a number and a time"),
        (["set", "api", "--concurrency", "-1"], 2, "expected a number from 0 to 1000000"),
    ],
    ids=repr,
)
def test_what_is_refused(database: str, arguments: list[str], status: int, message: str) -> None:
    output = holdfast("limits", *arguments, database=database)
    assert output.status == status
    assert message in output.err
