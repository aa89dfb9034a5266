"""`holdfast mcp`: the real command, asked by the protocol's own client."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent
from psycopg.conninfo import make_conninfo

from tests.kit.commands import environment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

MODULE = Path(__file__).parents[2] / "src" / "holdfast" / "_cli" / "mcp.py"
TOOLS = {"status", "why_does_it_wait", "show_job", "search_jobs", "dead_letters"}


@asynccontextmanager
async def asking(database: str, *options: str) -> AsyncGenerator[Client]:
    env = environment(database) | {"PATH": os.environ["PATH"]}
    command = StdioServerParameters(command=sys.executable, args=["-m", "holdfast", "mcp", *options], env=env)
    # Its own standard error may be one that an earlier test has closed.
    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230 - it is never slow
        async with Client(stdio_client(command, nowhere)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    return answer.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    [refusal] = answer.content
    assert isinstance(refusal, TextContent)
    return refusal.text


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def enqueue(conn: psycopg.Connection[Any], call: str) -> int:
    row = conn.execute(f"SELECT holdfast.enqueue({call})".encode()).fetchone()
    assert row is not None
    return int(row[0])


async def test_it_has_tools_that_only_read_and_says_whose_words_payloads_are(database: str) -> None:
    async with asking(database) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert "never instructions" in str(client.instructions)


async def test_the_status_names_causes_and_advice(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, "'mail'")
    async with asking(database) as client:
        status = await call(client, "status")
    assert status["ok"] is False
    assert status["problems"]
    assert status["problems"][0]["advice"]


async def test_a_job_that_waits_has_its_reasons(database: str, conn: psycopg.Connection[Any]) -> None:
    first = enqueue(conn, "'first', order_key => 'k'")
    conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('paused', true)")
    jobs = {
        "not_due": enqueue(conn, "'mail', '{}', delay => '1 hour'"),
        "unserved": enqueue(conn, "'mail', '{}'"),
        "paused": enqueue(conn, "'mail', '{}', queue => 'paused'"),
        "order_key": enqueue(conn, "'mail', '{}', order_key => 'k'"),
        "blockers": enqueue(conn, f"'mail', '{{}}', blockers => ARRAY[{first}]"),
    }
    conn.execute("UPDATE holdfast.job SET status = 'blocked' WHERE id = %s", [jobs["order_key"]])
    async with asking(database) as client:
        for reason, job in jobs.items():
            answer = await call(client, "why_does_it_wait", job_id=job)
            assert any(reason == one["code"] and one["text"] for one in answer["waits"]), answer


async def test_a_job_is_shown_redacted_and_cut(database: str, conn: psycopg.Connection[Any]) -> None:
    payload = """'{"to": "ada", "password": "hush", "birthday": "1815", "text": "' || repeat('x', 9000) || '"}'"""
    long = enqueue(conn, f"'mail', ({payload})::json")
    short = enqueue(conn, """'mail', '{"to": "ada", "password": "hush", "birthday": "1815"}'""")
    async with asking(database, "--redact-field", "birthday") as client:
        for job in (long, short):
            shown = await call(client, "show_job", job_id=job)
            assert shown["redacted"] is True
            assert "ada" in str(shown)
            assert not {word for word in ("hush", "1815") if word in str(shown)}
            assert len(str(shown)) < 8000
        assert await refused(client, "show_job", job_id=10**9)


async def test_jobs_are_found_page_by_page_and_not_by_what_is_hidden(
    database: str, conn: psycopg.Connection[Any]
) -> None:
    jobs = [enqueue(conn, f"""'mail', '{{"n": {n}, "password": "hush"}}', queue => 'q{n % 2}'""") for n in range(5)]
    async with asking(database) as client:
        page = await call(client, "search_jobs", queue="q0", limit=2)
        assert [int(job["id"]) for job in page["items"]] == [jobs[4], jobs[2]]
        rest = await call(client, "search_jobs", queue="q0", limit=2, before=page["next"])
        assert [int(job["id"]) for job in rest["items"]] == [jobs[0]]
        assert (await call(client, "search_jobs", text="hush"))["items"] == []
        assert "status" in await refused(client, "search_jobs", status="dancing")


async def test_what_failed_is_grouped(database: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "INSERT INTO holdfast.job_failed (id, created_at, available_at, finished_at, status, attempt, priority, queue,"
        " kind, last_error_code, last_error) SELECT n, now(), now(), now(), 'failed', 1, 5, 'q', 'mail', 'E', 'no'"
        " FROM generate_series(1, 3) n"
    )
    async with asking(database) as client:
        (group,) = (await call(client, "dead_letters"))["items"]
    assert (group["kind"], group["error_code"]) == ("mail", "E")


async def test_a_viewer_is_enough(database: str, conn: psycopg.Connection[Any]) -> None:
    job = enqueue(conn, "'mail'")
    conn.execute("CREATE ROLE mcp_viewer LOGIN IN ROLE holdfast_viewer")
    try:
        async with asking(make_conninfo(database, user="mcp_viewer")) as client:
            assert (await call(client, "status"))["ok"] is False
            assert (await call(client, "show_job", job_id=job))["kind"] == "mail"
            assert (await call(client, "why_does_it_wait", job_id=job))["waits"]
    finally:
        conn.execute("DROP ROLE mcp_viewer")


async def test_a_database_that_is_away_is_an_answer(unused_tcp_port: int) -> None:
    async with asking(f"postgresql://127.0.0.1:{unused_tcp_port}/shop?connect_timeout=2") as client:
        assert "cannot connect" in await refused(client, "status")


def test_it_stays_small() -> None:
    assert len(MODULE.read_text().splitlines()) <= 300
