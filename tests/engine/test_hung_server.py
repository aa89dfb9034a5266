"""A server that hangs with its connections open, and another in its place that a URL with several hosts leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import Holdfast, Job
from holdfast._engine.address import connect, watched
from holdfast._engine.link import Link
from holdfast._engine.wake.listen import Listener
from holdfast._store.worker import identify_database
from tests.kit.pace import MINUTE, QUICK, ms
from tests.kit.trouble import Line
from tests.kit.waiting import Stopwatch, serving, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

LEASE = 6000
BEAT = 1000


def hosts(*lines: Line) -> str:
    """Return one address for all of them, in this order."""
    parts = [urlsplit(line.url) for line in lines]
    places = ",".join(f"{part.hostname}:{part.port}" for part in parts)
    return f"postgresql://{parts[0].username}@{places}{parts[0].path}?target_session_attrs=read-write"


async def test_a_host_that_does_not_answer_leaves_time_for_the_next(database: str) -> None:
    """The first would use up all the time that a statement has, which is shorter than the timeout of one host."""
    async with Line(database) as first, Line(database) as second:
        first.freeze()
        async with Link(hosts(first, second), timeout=4.5) as link, Stopwatch() as watch:
            assert await link.run(identify_database())
        assert watch.seconds < 4


@pytest.mark.parametrize(
    ("given", "seconds", "expected"),
    [
        ("host=a", None, 5),
        ("host=a", 60, 5),
        ("host=a,b,c", 60, 5),
        ("host=a,b,c", 9, 3),
        ("host=a,b,c hostaddr=1,2,3,4", 9, 2),
        ("host=a,b,c", 3, 2),
        ("host=a connect_timeout=2", 60, 2),
        ("host=a connect_timeout=20", None, 20),
        ("host=a connect_timeout=20", 60, 20),
        ("host=a connect_timeout=20", 9, 9),
        ("host=a connect_timeout=0", 9, 9),
    ],
)
def test_the_timeout_of_each_host(given: str, seconds: float | None, expected: int) -> None:
    assert int(watched(conninfo_to_dict(given), seconds)["connect_timeout"]) == expected


async def test_parameters_of_the_url_win(database: str) -> None:
    async with await connect(f"{database}?application_name=shop&keepalives_idle=3") as conn:
        given = conn.info.get_parameters()
    assert given["application_name"] == "shop"
    assert given["keepalives_idle"] == "3"
    assert given["tcp_user_timeout"] == "10000"


async def test_a_worker_leaves_a_server_that_hangs(ledger: Ledger, database: str) -> None:
    """No connection is closed, and none is answered. It claims, runs and is woken through the second host."""
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with Line(database) as first, Line(database) as second:
        app.url = hosts(first, second)
        settings: dict[str, Any] = {**MINUTE, "lease": ms(LEASE), "heartbeat": ms(BEAT), "shutdown_timeout": ms(BEAT)}
        async with app.worker(**settings) as worker:
            listening = serving(worker).session.listening
            await until(listening.is_set)
            ledger.enqueue(act.new())
            await until(lambda: ledger.completed() == 1)
            first.freeze()
            ledger.enqueue(act.new())
            await until(lambda: ledger.completed() == 2)
            await until(listening.is_set)
            await until(lambda: ledger.value("SELECT count(*) FROM holdfast.sleeper WHERE until > now()"))
            async with Stopwatch() as watch:
                ledger.enqueue(act.new())
                await until(lambda: ledger.completed() == 3)
            assert watch.seconds < 30, "it was not woken: it would look by itself after a minute"


async def test_a_connection_that_is_younger_than_the_last_beat_is_kept(ledger: Ledger, database: str) -> None:
    """After a restart of the server the listener reconnects at once. The heartbeat, which notices later, leaves it."""
    app = Holdfast(database)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**{**MINUTE, "heartbeat": ms(1500), "lease": ms(LEASE)}) as worker:
        part = serving(worker)
        waker = part.waker
        assert isinstance(waker, Listener)
        await until(part.session.listening.is_set)
        beats, connected_at = part.heartbeat.beats, waker._connected_at
        await until(lambda: part.heartbeat.beats > beats)
        ledger.terminate_sessions()
        await until(lambda: waker._connected_at > connected_at)
        beats, connected_at = part.heartbeat.beats, waker._connected_at
        await until(lambda: part.heartbeat.beats > beats)
        assert waker._connected_at == connected_at


async def test_a_claim_without_an_answer_ends_when_the_heartbeat_gets_none(ledger: Ledger, database: str) -> None:
    """Long before its own time is up, which is a lease of ten minutes."""
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with Line(database) as first, Line(database) as second:
        app.url = hosts(first, second)
        settings: dict[str, Any] = {**QUICK, "lease": ms(600_000), "heartbeat": ms(BEAT)}
        async with app.worker(**settings, listen=False) as worker:
            link = serving(worker).claimer._link
            await until(lambda: link.connected)
            first.freeze()
            await until(lambda: link.silent(BEAT / 2000))
            ledger.enqueue(act.new())
            await until(lambda: ledger.completed() == 1)
