from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.commands import Output, Running, holdfast
from tests.kit.databases import clone
from tests.kit.workers import enqueue, job, number, statuses

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tools.postgres import Server

OTHERS_OFF = "-relay,-schedules,-reaper,-bulk_actions,-maintenance"


def outcomes(output: Output) -> dict[str, str]:
    """By runner, in the order in which they ran."""
    return {one["runner"]: one["outcome"] for one in output.json["runners"]}


def test_every_runner_once_in_order(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("quick"), job("quick"))
    output = holdfast("tick", "cycles:app", "--json", database=database, cwd=shop)
    assert output.status == 0
    assert list(outcomes(output)) == ["outbox", "first", "second", "schedules", "reaper", "bulk_actions", "maintenance"]
    assert {name for name, outcome in outcomes(output).items() if outcome != "completed"} <= {"maintenance"}  # not due
    first = output.json["runners"][1]
    assert (first["counts"], first["error"]) == ({"seen": 2, "left": 0}, None)
    assert set(statuses(conn).values()) == {"completed"}
    assert number(conn, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == 0


def test_a_table_for_people(database: str, shop: Path) -> None:
    output = holdfast(
        "tick", "cycles:app", database=database, cwd=shop, HOLDFAST_TICK_RUNNERS=f"second,first,{OTHERS_OFF}"
    )
    assert output.status == 0
    head, *lines = output.out.splitlines()
    assert head.split() == ["RUNNER", "OUTCOME", "TOOK", "COUNTS,", "OR", "WHY"]
    assert [line.split()[:2] for line in lines] == [["second", "completed"], ["first", "completed"]]
    assert lines[0].endswith("200 items")
    assert lines[1].endswith("2 seen")


def test_the_budget_of_items(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("quick") for _ in range(20)))
    options = {"HOLDFAST_TICK_RUNNERS": "outbox,second", "HOLDFAST_TICK_RUNNER_MAX_ITEMS": "5"}
    output = holdfast("tick", "cycles:app", "--json", database=database, cwd=shop, **options)
    assert output.status == 0
    assert sorted(statuses(conn).values()) == ["completed"] * 5 + ["pending"] * 15
    assert output.json["runners"][1]["counts"] == {"items": 5}
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE attempt > 0") == 0


def test_a_runner_that_fails_does_not_stop_the_next(database: str, shop: Path) -> None:
    output = holdfast(
        "tick",
        "cycles:failing",
        "--json",
        database=database,
        cwd=shop,
        HOLDFAST_TICK_RUNNERS=f"broken,after,{OTHERS_OFF}",
    )
    assert output.status == 1
    assert outcomes(output) == {"broken": "failed", "after": "completed"}
    assert output.json["runners"][0]["error"] == "it broke, and the password=***"
    assert output.json["exit_code"] == 1
    assert "hush" not in output.out + output.err


def test_the_time_of_one_runner(database: str, shop: Path) -> None:
    options = {"HOLDFAST_TICK_RUNNERS": f"waiting,after,{OTHERS_OFF}", "HOLDFAST_TICK_RUNNER_MAX_MS": "200"}
    output = holdfast("tick", "cycles:failing", "--json", database=database, cwd=shop, **options)
    assert output.status == 1
    assert outcomes(output) == {"waiting": "failed", "after": "completed"}
    assert output.json["runners"][0]["error"] == "it ran longer than 0.2 s"


def test_no_time_left_for_the_last(database: str, shop: Path) -> None:
    options = {"HOLDFAST_TICK_RUNNERS": "waiting,after", "HOLDFAST_TICK_OVERALL_MAX_MS": "300"}
    output = holdfast("tick", "cycles:failing", "--json", database=database, cwd=shop, **options)
    assert outcomes(output)["after"] == "skipped"
    assert output.json["runners"][1]["why"] == "no time left"
    assert output.status == int("failed" in outcomes(output).values())


def test_a_signal_ends_it_and_gives_the_jobs_back(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("endless"))
    with Running("tick", "cycles:app", database=database, cwd=shop) as tick:
        tick.wait_for_line("endless")
        tick.signal(signal.SIGTERM)
        assert tick.ended() == 1
    assert "stopped by a signal before every runner had its turn" in tick.messages()
    assert set(statuses(conn).values()) == {"pending"}
    assert number(conn, "SELECT max(attempt) FROM holdfast.job") == 0


@pytest.mark.parametrize(("kind", "left"), [("stubborn", "processing"), ("borrowing", "pending")])
def test_whatever_a_handler_leaves_behind_the_process_ends(
    database: str, shop: Path, conn: psycopg.Connection[Any], kind: str, left: str
) -> None:
    enqueue(conn, job(kind, queue="slow"))
    options = {"HOLDFAST_TICK_RUNNERS": "outbox", "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "200"}
    with Running("tick", "shop:app", database=database, cwd=shop, **options) as tick:
        tick.wait_for_line(kind)
        tick.signal(signal.SIGTERM)
        assert tick.ended() == 1
    assert set(statuses(conn).values()) == {left}
    assert any("handlers left something running" in message for message in tick.messages())


def test_a_runner_that_is_not_there(database: str, shop: Path) -> None:
    output = holdfast("tick", "cycles:app", database=database, cwd=shop, HOLDFAST_TICK_RUNNERS="first,third")
    assert output.status == 1
    assert output.err.startswith("holdfast tick: HOLDFAST_TICK_RUNNERS: no runner is named third")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    "address", ["postgresql://me:hush@127.0.0.1:1/away", "host=127.0.0.1 port=1 dbname=away user=me password=hush"]
)
def test_a_database_that_cannot_be_reached(shop: Path, address: str) -> None:
    output = holdfast("tick", "cycles:app", "--json", database=address, cwd=shop)
    assert output.status == 1
    assert "hush" not in output.out + output.err
    assert "Traceback" not in output.err


def test_a_database_without_schema(server: Server, shop: Path) -> None:
    with clone(server, "template0") as empty:
        output = holdfast("tick", "cycles:app", database=empty, cwd=shop)
    assert output.status == 1
    assert output.err.splitlines()[-1] == "holdfast tick: This database has no Holdfast schema: run `holdfast migrate`."
