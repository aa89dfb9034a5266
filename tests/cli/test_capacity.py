from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.kit.commands import holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., psycopg.Connection[Any]]

LOAD = ("--jobs-per-second", "2000", "--payload", "1kB", "--retention", "14")
HARDWARE = ("--cores", "8", "--disk", "500GB", "--wal-mb-per-second", "100", "--connections", "100")


def test_it_names_what_gives_out_first_and_draws_it() -> None:
    output = holdfast("capacity", *LOAD, *HARDWARE, "--workers", "4")
    assert (output.status, output.err) == (0, "")
    assert "2,000 jobs/s of 1 kB, 4 workers of 10 slots" in output.out
    assert "disk gives out first" in output.out
    # 2,000 a second for 14 days need several times as much.
    [disk] = [line for line in output.out.splitlines() if line.startswith("disk")]
    assert "##>" in disk
    assert "--retention" in output.out


def test_the_same_for_programs() -> None:
    found: Any = holdfast("capacity", *LOAD, *HARDWARE, "--json").json
    assert found["first"] == "disk"
    assert not found["fits"]
    assert 0 < found["ceiling"] < 2000
    assert found["workers"] >= 1
    resources = {line["resource"]: line for line in found["resources"]}
    assert resources["connections"]["used"] == 4 * found["workers"]
    assert resources["disk"]["available"] == 500e9
    assert resources["WAL"]["available"] == 100e6
    assert found["measured"] is None


@pytest.mark.nightly
def test_a_load_that_fits() -> None:
    output = holdfast("capacity", "--jobs-per-second", "10", "--cores", "8")
    assert "every resource is used to 70% at most" in output.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--jobs-per-second is missing"),
        (("--jobs-per-second", "many"), "--jobs-per-second: expected a number from 0 to 1e+09, got 'many'"),
        (("--jobs-per-second", "1", "--disk", "big"), "'big' is not a size: write bytes, or 10kB, 500GB, 1.5TB"),
        (("--jobs-per-second", "1", "--workers", "0"), "expected a number from 1 to 100000, got '0'"),
        (("--jobs-per-second", "1", "--measure"), "no database: give --database-url"),
    ],
)
def test_a_wrong_call(options: tuple[str, ...], message: str) -> None:
    output = holdfast("capacity", *options)
    assert output.status == 2
    assert message in output.err
    assert output.out == ""


@pytest.mark.nightly
def test_the_server_is_measured_and_left_as_it_was(database: str, connect: Connect) -> None:
    conn = connect()
    before = _tables(conn)
    found: Any = holdfast("capacity", *LOAD, "--measure", "--commit-ms", "7", "--json", database=database).json
    assert _tables(conn) == before
    assert all(value > 0 for value in found["measured"].values())
    deployment = found["deployment"]
    assert deployment["commits"] == found["measured"]["commits"]
    assert deployment["wal"] == found["measured"]["wal"]
    # An option comes before what was measured.
    assert deployment["commit"] == pytest.approx(0.007)
    assert deployment["server_speed"] != 1
    output = holdfast("capacity", *LOAD, "--measure", database=database)
    assert output.out.startswith("measured: a server core at ")


@pytest.mark.nightly
def test_a_server_with_few_connections_is_measured_with_fewer(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 3")
    try:
        url = psycopg.conninfo.make_conninfo(database, user="few")
        output = holdfast("capacity", *LOAD, "--measure", "--json", database=url)
        assert (output.status, output.err) == (0, "")
        assert output.json["measured"]["commits"] > 0
    finally:
        conn.execute("DROP ROLE few")


def _tables(conn: psycopg.Connection[Any]) -> list[Any]:
    return conn.execute(
        "SELECT relname, relnamespace FROM pg_class WHERE relpersistence <> 't' ORDER BY 1, 2"
    ).fetchall()
