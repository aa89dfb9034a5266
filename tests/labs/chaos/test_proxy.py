from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from labs.chaos.proxy import Proxy
from tests.kit.waiting import until_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


def connect(proxy: Proxy, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", autocommit=True, **{"connect_timeout": 20, **options}
    )


def backends(server: Server, name: str) -> int:
    with psycopg.connect(server.url()) as conn:
        found = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
    assert found is not None
    return int(found[0])


def test_everything_passes_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        text = "a" * 5_000_000
        assert conn.execute("SELECT %s::text", [text]).fetchone() == (text,)
        assert proxy.connections == 1
    until_true(lambda: proxy.connections == 0)


def test_many_at_once(proxy: Proxy) -> None:
    def work(n: int) -> int:
        with connect(proxy) as conn:
            found = [conn.execute("SELECT %s::int + i FROM generate_series(0, 99) i", [n]).fetchall() for _ in range(9)]
        return sum(value for rows in found for (value,) in rows)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [9 * (100 * n + 4950) for n in range(40)]


def test_cut_resets_open_connections_and_accepts_new_ones(proxy: Proxy, server: Server) -> None:
    with connect(proxy, application_name="cut") as conn:
        proxy.cut()
        with pytest.raises(psycopg.OperationalError, match=r"reset by peer|terminat|closed"):
            conn.execute("SELECT 1")
        until_true(lambda: backends(server, "cut") == 0)
        with connect(proxy) as another:
            another.execute("SELECT 1")


def test_an_answer_that_is_under_way_is_cut_too(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        timer = threading.Timer(0.1, proxy.cut)
        timer.start()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT pg_sleep(5)")
        timer.join()


def test_refuse_and_pass_again(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        connect(proxy)
    for _ in range(3):
        proxy.refuse()
        proxy.pass_()
    with connect(proxy) as conn:
        conn.execute("SELECT 1")


def test_half_open_says_nothing_and_ends_nothing(proxy: Proxy, server: Server) -> None:
    with connect(proxy, application_name="half open") as conn, ThreadPoolExecutor(1) as pool:
        proxy.half_open()
        asked = pool.submit(conn.execute, "SELECT 1")
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            connect(proxy, connect_timeout=2)
        assert not asked.done()
        assert backends(server, "half open") == 1
        proxy.pass_()
        assert isinstance(asked.exception(5), psycopg.OperationalError)
    until_true(lambda: backends(server, "half open") == 0)
    with connect(proxy) as another:
        another.execute("SELECT 1")


def test_a_client_that_leaves_while_half_open_leaves_its_backend(proxy: Proxy, server: Server) -> None:
    conn = connect(proxy, application_name="left behind")
    proxy.half_open()
    conn.close()
    time.sleep(0.2)
    assert backends(server, "left behind") == 1
    proxy.pass_()
    until_true(lambda: backends(server, "left behind") == 0)


def test_a_connection_idle_while_half_open_goes_on(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        proxy.half_open()
        proxy.pass_()
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_delay_and_the_end_of_it(proxy: Proxy) -> None:
    with connect(proxy) as conn, ThreadPoolExecutor(1) as pool:
        proxy.delay(0.2)
        began = time.monotonic()
        conn.execute("SELECT 1")
        assert time.monotonic() - began > 0.39
        proxy.delay(30)
        asked = pool.submit(conn.execute, "SELECT 1")
        time.sleep(0.05)
        proxy.pass_()
        assert asked.result(5).fetchone() == (1,)


def test_throttle(proxy: Proxy) -> None:
    with connect(proxy) as conn:
        text = "a" * 50_000

        def seconds() -> float:
            began = time.monotonic()
            assert conn.execute("SELECT length(%s::text)", [text]).fetchone() == (50_000,)
            return time.monotonic() - began

        proxy.throttle(100_000)
        assert seconds() > 0.45
        proxy.pass_()
        assert min(seconds() for _ in range(5)) < 0.45


def test_a_server_that_is_away_is_a_reset(proxy: Proxy) -> None:
    with Proxy(1) as nowhere:
        with pytest.raises(psycopg.OperationalError):
            connect(nowhere)
        nowhere.target = proxy.target
        with connect(nowhere) as conn:
            conn.execute("SELECT 1")
