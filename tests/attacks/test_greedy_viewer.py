"""A viewer asks for as much as they can get: turns at the database, live streams, hidden values."""

from __future__ import annotations

import asyncio
import string
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from holdfast._ops.live import OWN_LISTENERS
from holdfast._ops.responses.job import PROBLEM
from holdfast.ops import Role, operations
from tests.kit.access import make_token
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
SECRET = "sk7"  # noqa: S105 - the prize


@pytest.fixture
def served(database: str) -> Iterator[Served]:
    with Served(operations(url=database, connections=4)) as served:
        yield served


def client(served: Served, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    limits = httpx.Limits(max_connections=200)
    return httpx.AsyncClient(base_url=served.url, headers=headers, timeout=PATIENCE, limits=limits, trust_env=False)


@pytest.mark.nightly
async def test_parallel_searches_of_a_viewer_hold_up_neither_operators_nor_probes(
    database: str, served: Served
) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(
            "SELECT count(holdfast.enqueue('mail.send', json_build_object('n', n, 'body', repeat(md5(n::text), 3000))))"
            " FROM generate_series(1, 1000) AS n"
        )
    codes: Counter[int] = Counter()
    stop, answered = asyncio.Event(), asyncio.Event()
    async with (
        client(served, make_token(database, Role.VIEWER)) as viewer,
        client(served, make_token(database, Role.OPERATOR)) as operator,
    ):

        async def search() -> None:
            while not stop.is_set():
                codes[(await viewer.get("/api/v1/jobs", params={"text": "zzz"})).status_code] += 1
                if codes[200]:
                    answered.set()

        searching = [asyncio.create_task(search()) for _ in range(24)]
        await asyncio.wait_for(answered.wait(), PATIENCE)
        began = time.monotonic()
        answers = [await operator.get(path) for path in ("/api/v1/overview", "/api/v1/queues", "/ready", "/live")]
        acted = await operator.post("/api/v1/queues/default/actions", json={"action": "pause"})
        seconds = time.monotonic() - began
        stop.set()
        await asyncio.gather(*searching)
    assert [answer.status_code for answer in (*answers, acted)] == [200, 200, 503, 200, 200], "no worker lives"
    assert answers[2].json()["problems"][0]["code"] == "no_worker"
    assert seconds < 10.0
    assert set(codes) <= {200, 429}


async def test_a_viewer_cannot_take_all_live_streams(database: str, served: Served) -> None:
    async with (
        client(served, make_token(database, Role.VIEWER)) as viewer,
        client(served, make_token(database, Role.OPERATOR)) as operator,
        AsyncExitStack() as streams,
    ):
        for _ in range(OWN_LISTENERS):
            opened = await streams.enter_async_context(viewer.stream("GET", "/api/v1/overview/live"))
            assert opened.status_code == 200
        refused = await viewer.get("/api/v1/overview/live")
        assert (refused.status_code, refused.json()["type"]) == (429, f"{PROBLEM}too_many_of_yours")
        assert (await streams.enter_async_context(operator.stream("GET", "/api/v1/overview/live"))).status_code == 200


@pytest.mark.nightly
async def test_a_hidden_value_cannot_be_read_letter_by_letter(database: str, served: Served) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(
            "SELECT count(holdfast.enqueue('crm.push', json_build_object('to', 'ann', 'api_key', %s::text,"
            " 'nested', json_build_object('Password', %s::text)))) FROM generate_series(1, 700)",
            [SECRET, SECRET],
        )
    async with client(served, make_token(database, Role.VIEWER)) as viewer:

        async def answer(text: str, limit: int = 1) -> Any:
            found = await viewer.get("/api/v1/jobs", params={"text": text, "limit": limit, "kind": "crm.push"})
            assert found.status_code == 200
            return found.json()

        assert len((await answer("ANN", 5))["items"]) == 5, "what is shown is found"
        assert (await answer('"api_key"'))["items"], "names are shown"
        never = await answer("no such text")
        assert never["items"] == []
        for letter in string.ascii_lowercase + string.digits:
            assert await answer(f'"api_key":"{letter}') == never
            assert await answer(f'"api_key": "{letter}') == never
        assert await answer(SECRET) == never
