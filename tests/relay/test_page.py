"""The page about events does what it says: its blocks are run one after the other, and then a worker runs."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import _cli as cli
from tests.kit.nats import stream
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tools.nats import NatsServer

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "events.md"
TEXT = PAGE.read_text()


async def test_the_page_is_true(database: str, nats_server: NatsServer) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) > 5
    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as conn,
        stream(nats_server, "page", "shop.>") as shop,
    ):
        await conn.execute("CREATE TABLE invoice AS SELECT 7 AS id, NULL::timestamptz AS paid_at")
        await conn.execute("CREATE TABLE account AS SELECT 0 AS balance")
        names: dict[str, Any] = {"conn": conn}
        for block in blocks:
            there = block.replace("postgresql://localhost/shop", database)
            there = there.replace("nats://localhost:4222", nats_server.url)
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(there, PAGE.name, "exec", flags=flags, dont_inherit=True)
            if inspect.isawaitable(running := eval(code, names)):  # noqa: S307 - the page of this very checkout
                await running

        async def result() -> Any:
            row = await (await conn.execute("SELECT result #>> '{}' FROM holdfast.job_history")).fetchone()
            return row and row[0]

        async with names["app"].worker():
            [message] = await shop.wait_for(1)
            await until(result)
        assert await result() == "500 booked for invoice 7"
        assert (message.subject, message.data) == ("shop.invoice.paid", b'{"invoice":7,"amount":500}')
        assert message.headers["holdfast-event-id"] == str(names["event_id"])
        assert message.headers["tenant"] == "a"
        balance = await (await conn.execute("SELECT balance FROM account")).fetchone()
        assert balance == (507,)


def test_every_command_is_one() -> None:
    for line in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[0].splitlines():
        _, *words = line.partition("#")[0].split()
        assert cli._parser().parse_args(words).command == "events"


def test_what_it_says_of_the_schema_is_there(database: str) -> None:
    with psycopg.connect(database) as conn:
        for table, keep in (("event", 7), ("inbox", 14)):
            row = conn.execute(
                "SELECT extract(day FROM keep) FROM holdfast.retention WHERE family = %s", [table]
            ).fetchone()
            assert row == (keep,)
        conn.execute("SELECT * FROM holdfast.lag()")


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / target).exists(), target
