"""Each line of the tables of other projects' concepts is executed as it stands there."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Continue, Cron, Every, Fail, Group, Holdfast, Job, Limit, Reschedule, Retry, Unique
from holdfast._cli import _parser
from holdfast._model.settings import Settings
from holdfast.testing import Testing
from tests.docs.block import ROOT
from tests.kit.pace import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECTS = ("celery", "procrastinate", "pgqueuer", "oban")
# Words of the text, and a call that would run until a signal comes: tests/cli/test_worker.py.
WORDS = {"job", "ship", "holdfast", "at=", "holdfast top", "sys.exit(app.run_worker())"}
WORDS |= {"Holdfast(url)", "app.sync", "job_history", "Holdfast(lifespan=resources)"}


def spans(project: str) -> Iterator[str]:
    """Yield the code of the right column."""
    page = (ROOT / "docs" / "how-to" / f"move-from-{project}.md").read_text("utf-8")
    table = re.split("Not there|\n## ", page.partition("## Concepts")[2])[0]
    for line in table.splitlines()[4:]:
        if line.startswith("|"):
            _, right = re.split(r"(?<!\\)\|", line.strip("| "), maxsplit=1)
            yield from (span for span in re.findall(r"`([^`]+)`", right) if span not in WORDS)


@pytest.fixture
async def names(database: str) -> dict[str, Any]:
    """Return the names that the lines use: an application, a job of it that has completed, and others."""
    app = Holdfast(database)

    @app.job("ship")
    async def ship(job: Job[None], order_id: int) -> str:
        return f"shipped {order_id}"

    @app.job("report")
    async def report(job: Job[None], order_id: int) -> str:
        return f"reported {order_id}"

    conn = await psycopg.AsyncConnection.connect(database)
    handle = await app.enqueue(conn, ship.new(7))
    await conn.commit()
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == "shipped 7"
    job = Job(id=7, kind="ship", state=None)
    job.signal.deadline = asyncio.get_running_loop().time() + 60
    error = ConnectionError("down")
    words = {"app": app, "conn": conn, "handle": handle, "ship": ship, "report": report, "job": job, "error": error}
    classes = {cls.__name__: cls for cls in (Continue, Cron, Every, Fail, Group, Limit, Reschedule, Retry, Unique)}
    return words | classes | {"holdfast": Testing(app, conn)}


async def execute(span: str, names: dict[str, Any]) -> None:
    if span.startswith("holdfast "):
        words = shlex.split(span)[1:]
        _parser([words[0]]).parse(words)
    elif re.match(r"[A-Z_]+=", span):
        name, _, value = span.partition("=")
        assert Settings.load({name: value}) != Settings.load({})
    elif span.startswith("@"):
        exec(f"{span}\nasync def handler(job, order_id: int) -> None: ...", dict(names))  # noqa: S102 - of our page
    elif re.match(r"\w+=", span):
        decorated = f"@app.job('any', {span})\ndef handler(job, order_id: int) -> None: ..."
        exec(decorated, names | {"app": Holdfast()})  # noqa: S102 - of our page
    else:
        code = span if span.startswith(("return ", "raise ", "async with ")) else f"return {span}"
        found = names | {"asyncio": asyncio, "sys": sys}
        exec(f"async def run():\n    {code}", found)  # noqa: S102 - of our page
        try:
            await found["run"]()
        except (Fail, Reschedule, Retry.again):
            assert span.startswith("raise ")


@pytest.mark.parametrize("project", PROJECTS)
async def test_every_line_is_executed(project: str, names: dict[str, Any]) -> None:
    found = list(spans(project))
    assert len(found) > (30 if project == "celery" else 15)
    for span in found:
        try:
            await execute(span, names)
        except Exception as exc:
            raise AssertionError(f"this line of the table fails: {span}") from exc
    await names["conn"].close()
