"""Several databases behind one application: each has its own paths, and one that is silent slows no other."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Databases, Holdfast
from holdfast._ops.caller import Role
from holdfast.ops import operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.kit.commands import children
from tests.kit.databases import clone, create_template
from tests.kit.waiting import until
from tests.kit.workers import enqueue, job, statuses
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.applications import Starlette

# A page of a database that answers takes a few milliseconds; a machine that is busy with something else may be slower.
SOON = 3.0
GONE = "postgresql://me:hush@127.0.0.1:1/nowhere"


@pytest.fixture
def eu(server: Server, template: str) -> Iterator[str]:
    with clone(server, template) as url:
        yield url


@pytest.fixture
def us(server: Server, template: str) -> Iterator[str]:
    with clone(server, template) as url:
        yield url


@asynccontextmanager
async def serving(urls: dict[str, str], **options: Any) -> AsyncIterator[Starlette]:
    draining = options.pop("draining", ())
    site = operations(url=Databases(urls, draining=draining), **{"timeout": PATIENT, **options})
    try:
        yield site
    finally:
        await site.state.operations.close()


@contextmanager
def freezable(version: int) -> Iterator[tuple[str, int]]:
    """Yield a database of its own server, and the server's process."""
    with Server(version) as server:
        yield server.url(create_template(server)), server.pid


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freeze a server with everything that it does."""
    found = [pid, *children(pid)]
    for one in found:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in found:
            os.kill(one, signal.SIGCONT)


def do(url: str, *jobs: Any) -> list[int]:
    with psycopg.connect(url, autocommit=True) as conn:
        return enqueue(conn, *jobs)


async def get(site: Starlette, path: str, token: str) -> Answered:
    return await ask(site, Asked("GET", path, headers=bearer(token)))


async def state_of(site: Starlette, token: str, state: str) -> dict[str, Any]:
    """Ask until the second database is in this state, and return its line: a reading is shared for a second."""
    deadline = time.monotonic() + 30
    while True:
        line: dict[str, Any] = (await get(site, "/api/v1/databases", token)).json["items"][1]
        if line["state"] == state:
            return line
        assert time.monotonic() < deadline, line


async def test_each_database_has_its_own_paths(eu: str, us: str) -> None:
    do(eu, job("a"))
    do(us, job("b"), job("c"))
    token = make_token(eu, Role.OPERATOR, name="operator ann")
    async with serving({"eu": eu, "us": us}) as site:
        assert (await get(site, "/api/v1/me", token)).json["databases"] == ["eu", "us"]
        found = [(await get(site, f"/api/v1/databases/{name}/jobs", token)).json["items"] for name in ("eu", "us")]
        assert [[line["kind"] for line in jobs] for jobs in found] == [["a"], ["c", "b"]]
        answered = await get(site, "/api/v1/databases/eux/jobs", token)
        assert (answered.status, answered.refusal.code) == (404, "not_found")
        for path in ("/api/v1/jobs", "/api/v1/overview", "/api/v1/runners/x/runs", "/outbox/stats"):
            answered = await get(site, path, token)
            assert (answered.status, answered.refusal.code) == (404, "no_database_named")
            assert f"databases/NAME{path.removeprefix('/api/v1')}" in answered.refusal.detail
        cancel = {"action": "cancel", "ids": ["1"], "preview": False}
        path = "/api/v1/databases/us/jobs/actions"
        answered = await ask(site, Asked("POST", path, headers=bearer(token), json=cancel))
        assert (answered.status, answered.json["done"]) == (200, 1)
    with psycopg.connect(eu) as one, psycopg.connect(us) as other:
        assert statuses(one) == {1: "pending"}
        assert statuses(other) == {1: "cancelled", 2: "pending"}
        audited = "SELECT who FROM holdfast.audit"
        assert (one.execute(audited).fetchall(), other.execute(audited).fetchall()) == ([], [("operator ann",)])


@pytest.mark.nightly
async def test_a_request_is_repeated_in_its_own_database_alone(eu: str, us: str) -> None:
    for url in (eu, us):
        do(url, job("a", queue="mail"))
    token = make_token(eu, Role.OPERATOR)
    headers = (*bearer(token), ("idempotency-key", "7"))
    pause = {"action": "pause"}
    async with serving({"eu": eu, "us": us}) as site:
        for name in ("eu", "us", "eu"):
            asked = Asked("POST", f"/api/v1/databases/{name}/queues/mail/actions", headers=headers, json=pause)
            answered = await ask(site, asked)
            assert answered.status == 200
        assert answered.headers["idempotency-replayed"] == "true"
        for name in ("eu", "us"):
            [queue] = (await get(site, f"/api/v1/databases/{name}/queues", token)).json["items"]
            assert queue["paused"]


async def test_the_document_has_the_paths_that_are_there(eu: str, us: str) -> None:
    async with serving({"eu": eu, "us": us}) as site:
        document = (await ask(site, Asked("GET", "/api/v1/openapi.json"))).json
        paths = document["paths"]
        assert {"/api/v1/me", "/api/v1/databases", "/metrics", "/api/v1/databases/{database}/jobs/{id}"} <= paths.keys()
        assert not {"/api/v1/jobs", "/outbox/stats"} & paths.keys()
        operation = paths["/api/v1/databases/{database}/jobs/{id}"]["get"]
        assert [one["name"] for one in operation["parameters"]] == ["database", "id"]
        assert operation["tags"] == ["jobs"]


async def test_one_database_is_as_it_was(eu: str) -> None:
    token = make_token(eu, Role.VIEWER)
    async with serving({"eu": eu}) as site:
        assert (await get(site, "/api/v1/me", token)).json["databases"] == []
        assert (await get(site, "/api/v1/jobs", token)).status == 200
        assert (await get(site, "/api/v1/databases/eu/jobs", token)).status == 404
        [line] = (await get(site, "/api/v1/databases", token)).json["items"]
        assert (line["name"], line["state"]) == ("eu", "serving")
        metrics = (await get(site, "/metrics", token)).body
        assert b"holdfast_fleet_up 1.0" in metrics


async def test_the_states_of_all(eu: str, us: str) -> None:
    do(eu, job("a"), job("b"))
    token = make_token(eu, Role.VIEWER)
    async with serving({"eu": eu, "us": us, "gone": GONE}, draining=["us"]) as site:
        answered = await get(site, "/api/v1/databases", token)
        lines = {line["name"]: line for line in answered.json["items"]}
        assert {name: line["state"] for name, line in lines.items()} == {
            "eu": "serving",
            "us": "draining",
            "gone": "not answering",
        }
        assert lines["eu"]["figures"]["due"] == lines["eu"]["figures"]["unfinished"] == 2
        assert lines["us"]["figures"]["unfinished"] == 0
        assert lines["gone"]["figures"] is None
        assert lines["gone"]["why"]
        assert b"hush" not in answered.body
        assert (await ask(site, Asked("GET", "/api/v1/databases"))).status == 401


@pytest.mark.nightly
async def test_metrics_and_readiness_name_the_database(eu: str, us: str) -> None:
    do(us, job("a", queue="mail"))
    async with serving({"eu": eu, "us": us, "gone": GONE}, public_metrics=True) as site:
        text = (await ask(site, Asked("GET", "/metrics"))).body.decode()
        lines = set(text.splitlines())
        assert 'holdfast_fleet_up{database="eu"} 1.0' in lines
        assert 'holdfast_fleet_up{database="gone"} 0.0' in lines
        assert 'holdfast_queue_pending{database="us",queue="mail"} 1.0' in lines
        assert not [line for line in lines if line.startswith("holdfast_") and "database=" not in line]
        answered = await ask(site, Asked("GET", "/ready"))
        found = [(one["database"], one["code"]) for one in answered.json["problems"]]
        assert answered.status == 503
        assert found == [("eu", "no_worker"), ("us", "no_worker"), ("gone", "database_unreachable")]


@pytest.mark.nightly
async def test_one_database_that_is_worked_on_is_enough_to_be_ready(eu: str) -> None:
    async with serving({"eu": eu, "gone": GONE}) as site, Holdfast(eu).worker():
        answered = await ask(site, Asked("GET", "/ready"))
    assert (answered.status, answered.json["ready"]) == (200, True)
    assert [(one["database"], one["code"]) for one in answered.json["problems"]] == [("gone", "database_unreachable")]


@pytest.mark.nightly
async def test_a_frozen_database_slows_no_page_of_another(eu: str, server_version: int) -> None:
    token = make_token(eu, Role.VIEWER)
    with freezable(server_version) as (us, pid):
        do(us, job("a"))
        async with serving({"eu": eu, "us": us}, public_metrics=True, connections=3, timeout=1) as site:
            assert (await get(site, "/api/v1/databases/us/overview", token)).status == 200
            assert (await get(site, "/api/v1/databases", token)).json["items"][1]["figures"]["due"] == 1
            with frozen(pid):
                waiting = [asyncio.create_task(get(site, "/api/v1/databases/us/jobs", token)) for _ in range(20)]
                await asyncio.sleep(0)
                began = time.monotonic()
                for path in ("/api/v1/databases/eu/overview", "/api/v1/databases/eu/jobs", "/api/v1/me"):
                    assert (await get(site, path, token)).status == 200
                assert time.monotonic() - began < SOON
                line = await state_of(site, token, "not answering")
                assert line["why"].startswith("The database has not answered for ")
                assert line["figures"]["due"] == 1  # as last known
                began = time.monotonic()
                assert (await get(site, "/api/v1/databases", token)).json["items"][0]["state"] == "serving"
                assert time.monotonic() - began < 1.0  # one that was late is not waited for again
                metrics = (await ask(site, Asked("GET", "/metrics"))).body
                assert b'holdfast_fleet_up{database="us"} 0.0' in metrics
                assert b'holdfast_fleet_up{database="eu"} 1.0' in metrics
                ready = (await ask(site, Asked("GET", "/ready"))).json
                assert ("us", "database_unreachable") in [(one["database"], one["code"]) for one in ready["problems"]]
            assert {answered.status for answered in await asyncio.gather(*waiting)} <= {200, 429, 503}

            await state_of(site, token, "serving")


@pytest.mark.nightly
async def test_without_the_first_database_the_others_are_served(us: str, server_version: int) -> None:
    """Its tokens and sessions are remembered for a while; nobody else comes in."""
    with freezable(server_version) as (eu, pid):
        token, unused = make_token(eu, Role.VIEWER), make_token(eu, Role.VIEWER)
        async with serving({"eu": eu, "us": us}) as site:
            assert (await get(site, "/api/v1/databases/us/overview", token)).status == 200
            answered = await ask(site, Asked("POST", "/api/v1/session", json={"token": token}))
            cookie = (("cookie", answered.headers["set-cookie"].partition(";")[0]),)
            assert (await ask(site, Asked("GET", "/api/v1/me", headers=cookie))).status == 200
            site.state.operations.access._clock = lambda: time.monotonic() + 60.0  # what was looked up is asked anew
            with frozen(pid):
                for headers in (bearer(token), cookie):
                    began = time.monotonic()
                    answered = await ask(site, Asked("GET", "/api/v1/databases/us/overview", headers=headers))
                    assert answered.status == 200
                    assert time.monotonic() - began < 2 * SOON
                answered = await get(site, "/api/v1/databases/us/overview", unused)
                assert (answered.status, answered.refusal.code) == (503, "database_unreachable")


async def test_connections_are_limited_for_each(eu: str, us: str) -> None:
    token = make_token(eu, Role.OPERATOR)
    async with serving({"eu": eu, "us": us}, connections=2) as site:
        pages = [get(site, f"/api/v1/databases/{name}/overview", token) for name in ("eu", "us") for _ in range(10)]
        assert {answered.status for answered in await asyncio.gather(*pages)} == {200}
        for database in site.state.operations.databases.values():
            assert 1 <= database.service._pool._pool.get_stats()["pool_size"] <= 2


@pytest.mark.nightly
async def test_every_database_has_a_live_stream(eu: str, us: str) -> None:
    do(us, job("a"))
    token = make_token(eu, Role.VIEWER)
    async with serving({"eu": eu, "us": us}) as site:
        path = "/api/v1/databases/{}/overview/live"
        streams = [Asked("GET", path.format(name), headers=bearer(token), listens=2) for name in ("eu", "us")]
        one, other = await asyncio.gather(*(ask(site, asked) for asked in streams))
        assert b'"due":0' in one.body
        assert b'"due":1' in other.body
        await until(lambda: not any(d.opened.live.listeners for d in site.state.operations.databases.values()))
