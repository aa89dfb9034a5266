"""A relay to a webhook: its own times for trying again, and every answer on record."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import psycopg
import pytest

from holdfast import Holdfast, Retry
from holdfast._ops.requests import Before
from holdfast._ops.service import Service
from holdfast._relay import publisher as delivery
from holdfast._relay.sinks import webhook
from holdfast._relay.sinks.webhook import WebhookSink
from holdfast._relay.subscription import Poison
from tests.relay.sinks.endpoint import Endpoint, answer
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "whsec_" + "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
MS = timedelta(milliseconds=1)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as endpoint:
        yield endpoint


def _app(database: str, endpoint: Endpoint, retry: Retry, poison: Poison = "skip") -> tuple[Holdfast, Any]:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = WebhookSink(endpoint.url, SECRET, retry=retry, allow_private=True)
    app.relay("hook", sold, to=sink, poison=poison, window=1)
    return app, sold


async def _got(endpoint: Endpoint, count: int) -> list[int]:
    """Wait for so many requests; what each carried."""
    async with asyncio.timeout(SOON):
        while len(endpoint.requests) < count:  # noqa: ASYNC110 - the endpoint is asked
            await asyncio.sleep(0.01)
    return [json.loads(request.body)["n"] for request in endpoint.requests]


@pytest.mark.nightly(daily=["park_key"])
@pytest.mark.parametrize("poison", get_args(Poison))
async def test_an_event_that_waits_holds_up_its_key_and_no_other(
    database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, poison: Poison
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.05)
    app, sold = _app(database, endpoint, Retry.table([300 * MS], max_attempts=3, jitter=0 * MS), poison)
    endpoint.answers = [answer(500, "not now")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        given = [("a", 0), ("a", 1), ("b", 2)]
        await app.publish_many(conn, [sold.new({"n": n}, key=key) for key, n in given])
        assert await _got(endpoint, 4) == [0, 2, 0, 1]
        answers = "SELECT event_id, attempt, status, answer FROM holdfast.delivery ORDER BY event_id, attempt"
        async with asyncio.timeout(SOON):
            while len(rows := await (await conn.execute(answers.encode())).fetchall()) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert rows == [(1, 1, 500, "not now"), (1, 2, 200, "ok"), (2, 1, 200, "ok"), (3, 1, 200, "ok")]
        left = await (await conn.execute("SELECT count(*) FROM holdfast.parked")).fetchone()
        assert left == (0,)


@pytest.mark.nightly
async def test_when_all_tries_are_used_up_the_next_of_the_key_goes_on(
    database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.05)
    app, sold = _app(database, endpoint, Retry.table([200 * MS], max_attempts=2, jitter=0 * MS))
    endpoint.answers = [answer(500), answer(500)]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(2)])
        assert await _got(endpoint, 3) == [0, 0, 1]
        parked = "SELECT event_id, attempt, holds_key, released_at, error_code FROM holdfast.parked"
        async with asyncio.timeout(SOON):
            while len(rows := await (await conn.execute(parked.encode())).fetchall()) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert rows == [(1, 2, False, None, "NotTaken")]


async def test_without_a_limit_nothing_is_parked(database: str, endpoint: Endpoint) -> None:
    app, sold = _app(database, endpoint, Retry.table([1 * MS], max_attempts=None, jitter=0 * MS))
    endpoint.answers = [answer(500)] * 8
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(2)])
        assert await _got(endpoint, 10) == [0] * 9 + [1]
        assert await (await conn.execute("SELECT count(*) FROM holdfast.parked")).fetchone() == (0,)


async def test_what_will_never_be_taken_is_refused_at_once(database: str, endpoint: Endpoint) -> None:
    app, sold = _app(database, endpoint, Retry(max_attempts=5))
    endpoint.answers = [answer(422, "no")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(2)])
        assert await _got(endpoint, 2) == [0, 1]


@pytest.mark.nightly(daily=["400-park_key", "422-skip"])
@pytest.mark.parametrize("poison", ["skip", "park_key"])
@pytest.mark.parametrize("status", [400, 404, 422])
async def test_one_that_answers_4xx_is_logged_once_and_shown(
    database: str, endpoint: Endpoint, caplog: pytest.LogCaptureFixture, status: int, poison: Poison
) -> None:
    app, sold = _app(database, endpoint, Retry(max_attempts=5), poison)
    endpoint.answers = [answer(status, "no such order")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        event, _ = await app.publish_many(conn, [sold.new({"n": n}, key=key) for n, key in enumerate("ab")])
        assert await _got(endpoint, 2) == [0, 1]
        async with Service(database, timeout=timedelta(seconds=SOON)) as desk, asyncio.timeout(SOON):
            while not (shown := (await desk.parked("hook", Before())).items):  # noqa: ASYNC110 - a database is asked
                await asyncio.sleep(0.01)
            problems = [one for one in (await desk.overview()).problems if one.code == "relay_parked"]
    why = f"the endpoint answered {status}: no such order"
    [output] = [line for line in caplog.records if line.name == "holdfast.publisher"]
    assert output.levelname == "ERROR"
    assert output.getMessage() == (
        f"an event was parked: see `holdfast events parked hook`: attempt=1 subscription=hook event={event} "
        f'error=Refused why="{why}"'
    )
    assert [(line.event_id, line.error_code, line.error) for line in shown] == [(event, "Refused", why)]
    assert [(one.about, one.severity) for one in problems] == [("hook", "warning")]


async def test_one_that_is_gone_is_sent_nothing_more_until_a_person_says_so(
    database: str, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    app, sold = _app(database, endpoint, Retry(max_attempts=5))
    endpoint.answers = [answer(410, "gone")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(2)])
        async with asyncio.timeout(SOON):
            while "holdfast events resume hook" not in caplog.text:  # noqa: ASYNC110 - the log is read
                await asyncio.sleep(0.01)
        assert await (await conn.execute("SELECT paused FROM holdfast.subscription")).fetchone() == (True,)
        assert await _got(endpoint, 1) == [0]
        endpoint.answers = [answer(204)]
        await conn.execute("UPDATE holdfast.subscription SET paused = false")
        assert await _got(endpoint, 3) == [0, 0, 1]
        assert await (await conn.execute("SELECT count(*) FROM holdfast.parked")).fetchone() == (0,)


@pytest.mark.nightly
async def test_one_that_asks_for_no_pause_is_left_alone_all_the_same(database: str, endpoint: Endpoint) -> None:
    app, sold = _app(database, endpoint, Retry(max_attempts=5))
    endpoint.answers = [answer(503, "busy", Retry_After="0")] * 5
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        begun = time.monotonic()
        await app.publish(conn, sold.new({"n": 0}))
        await _got(endpoint, 6)
        # At the least half of 0.1, 0.2, 0.4, 0.8 and 1.6 s.
        assert time.monotonic() - begun > 1.5
        # No try counted, so the last answer stands for all of them.
        answers = "SELECT event_id, attempt, status, answer FROM holdfast.delivery"
        async with asyncio.timeout(SOON):
            while not (rows := await (await conn.execute(answers.encode())).fetchall()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert rows == [(1, 1, 200, "ok")]


@pytest.mark.nightly(daily=["503"])
@pytest.mark.parametrize("status", [429, 503])
async def test_one_that_asks_for_a_day_does_not_stop_the_relay_for_a_day(
    database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    for module in (delivery, webhook):
        monkeypatch.setattr(module, "LONGEST_REST", 0.2)
    app, sold = _app(database, endpoint, Retry(max_attempts=5))
    endpoint.answers = [answer(status, "tomorrow", Retry_After="86400")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish(conn, sold.new({"n": 0}))
        assert await _got(endpoint, 2) == [0, 0]


async def test_one_event_that_is_to_come_again_tomorrow_holds_up_its_key_alone(
    database: str, endpoint: Endpoint
) -> None:
    app, sold = _app(database, endpoint, Retry(max_attempts=5))
    endpoint.answers = [answer(500, "tomorrow", Retry_After="86400")]
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish(conn, sold.new({"n": 0}, key="a"))
        await _got(endpoint, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="b") for n in (1, 2)])
        assert await _got(endpoint, 3) == [0, 1, 2]
