from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.commands import Running, Said, holdfast
from tests.databases import clone
from tests.traps.workers import enqueue, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from tools.postgres import Server


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect()


def outcomes(said: Said) -> dict[str, str]:
    """By runner, in the order in which they ran."""
    return {one["runner"]: one["outcome"] for one in said.json["runners"]}


def test_every_runner_once_in_order(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("quick"), job("quick"))
    said = holdfast("tick", "cycles:app", "--json", database=database, cwd=shop)
    assert said.status == 0
    assert list(outcomes(said)) == ["outbox", "first", "second", "schedules", "reaper", "maintenance"]
    assert {name for name, outcome in outcomes(said).items() if outcome != "completed"} <= {"maintenance"}  # not due
    first = said.json["runners"][1]
    assert (first["counts"], first["error"]) == ({"seen": 2, "left": 0}, None)
    assert set(statuses(conn).values()) == {"completed"}
    assert number(conn, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == 0


def test_a_table_for_people(database: str, shop: Path) -> None:
    said = holdfast("tick", "cycles:app", database=database, cwd=shop, HOLDFAST_TICK_RUNNERS="second,first")
    assert said.status == 0
    head, *lines = said.out.splitlines()
    assert head.split() == ["RUNNER", "OUTCOME", "TOOK", "COUNTS,", "OR", "WHY"]
    assert [line.split()[:2] for line in lines] == [["second", "completed"], ["first", "completed"]]
    assert lines[0].endswith("200 items")
    assert lines[1].endswith("2 seen")


def test_the_budget_of_items(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("quick") for _ in range(20)))
    options = {"HOLDFAST_TICK_RUNNERS": "outbox,second", "HOLDFAST_TICK_RUNNER_MAX_ITEMS": "5"}
    said = holdfast("tick", "cycles:app", "--json", database=database, cwd=shop, **options)
    assert said.status == 0
    assert sorted(statuses(conn).values()) == ["completed"] * 5 + ["pending"] * 15
    assert said.json["runners"][1]["counts"] == {"items": 5}
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE attempt > 0") == 0


def test_a_runner_that_fails_does_not_stop_the_next(database: str, shop: Path) -> None:
    said = holdfast(
        "tick", "cycles:failing", "--json", database=database, cwd=shop, HOLDFAST_TICK_RUNNERS="broken,after"
    )
    assert said.status == 1
    assert outcomes(said) == {"broken": "failed", "after": "completed"}
    assert said.json["runners"][0]["error"] == "it broke, and the password=***"
    assert said.json["exit_code"] == 1
    assert "hush" not in said.out + said.err


def test_the_time_of_one_runner(database: str, shop: Path) -> None:
    options = {"HOLDFAST_TICK_RUNNERS": "waiting,after", "HOLDFAST_TICK_RUNNER_MAX_MS": "200"}
    said = holdfast("tick", "cycles:failing", "--json", database=database, cwd=shop, **options)
    assert said.status == 1
    assert outcomes(said) == {"waiting": "failed", "after": "completed"}
    assert said.json["runners"][0]["error"] == "it ran longer than 0.2 s"


def test_no_time_left_for_the_last(database: str, shop: Path) -> None:
    options = {"HOLDFAST_TICK_RUNNERS": "waiting,after", "HOLDFAST_TICK_OVERALL_MAX_MS": "300"}
    said = holdfast("tick", "cycles:failing", "--json", database=database, cwd=shop, **options)
    assert outcomes(said)["after"] == "skipped"
    assert said.json["runners"][1]["why"] == "no time left"
    assert said.status == int("failed" in outcomes(said).values())


def test_a_signal_ends_it_and_gives_the_jobs_back(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("endless"))
    with Running("tick", "cycles:app", database=database, cwd=shop) as tick:
        tick.hear("endless")
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
        tick.hear(kind)
        tick.signal(signal.SIGTERM)
        assert tick.ended() == 1
    assert set(statuses(conn).values()) == {left}
    assert any("handlers left something running" in message for message in tick.messages())


def test_a_runner_that_is_not_there(database: str, shop: Path) -> None:
    said = holdfast("tick", "cycles:app", database=database, cwd=shop, HOLDFAST_TICK_RUNNERS="first,third")
    assert said.status == 1
    assert said.err.startswith("holdfast tick: HOLDFAST_TICK_RUNNERS: no runner is named third")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "address", ["postgresql://me:hush@127.0.0.1:1/away", "host=127.0.0.1 port=1 dbname=away user=me password=hush"]
)
def test_a_database_that_cannot_be_reached(shop: Path, address: str) -> None:
    said = holdfast("tick", "cycles:app", "--json", database=address, cwd=shop)
    assert said.status == 1
    assert "hush" not in said.out + said.err
    assert "Traceback" not in said.err


def test_a_database_without_schema(server: Server, shop: Path) -> None:
    with clone(server, "template0") as empty:
        said = holdfast("tick", "cycles:app", database=empty, cwd=shop)
    assert said.status == 1
    assert said.err.splitlines()[-1] == "holdfast tick: This database has no Holdfast schema: run `holdfast migrate`."
