"""Every symptom of docs/how-to/troubleshooting.md is brought about, and the commands of its section show it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.worker import register_worker
from tests.docs import symptoms
from tests.docs.block import ROOT, Block, blocks
from tests.docs.conftest import SHOP
from tests.docs.page import Run
from tests.docs.terminal import matches
from tests.kit.commands import holdfast

if TYPE_CHECKING:
    from pathlib import Path

    from tools.postgres import Server

PAGE = "docs/how-to/troubleshooting.md"


def sections() -> dict[str, list[Block]]:
    """Return the blocks of each section, by the name of the function that brings its symptom about."""
    found: dict[str, list[Block]] = {}
    headings = [
        (number, re.sub(r"\W+", "_", line.removeprefix("## ").lower()))
        for number, line in enumerate((ROOT / PAGE).read_text("utf-8").splitlines(), 1)
        if line.startswith("## ")
    ]
    for block in blocks(PAGE):
        name = max((number, name) for number, name in headings if number < block.line)[1]
        found.setdefault(name, []).append(block)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("name", sections())
def test_the_commands_show_the_symptom(  # noqa: PLR0917 - fixtures are arguments
    name: str,
    variables: dict[str, str],
    postgres: dict[str, str],
    shop: str,
    server: Server,
    template: str,
    tmp_path: Path,
) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {SHOP} TEMPLATE {template} STRATEGY file_copy")
    given = variables | postgres | {"HOLDFAST_DATABASE_URL": f"postgresql://localhost/{SHOP}"}
    with symptoms.Stage(tmp_path, given, shop, server) as stage:
        getattr(symptoms, name)(stage)
        with Run(tmp_path, stage.variables, shop) as run:
            symptoms.prepare(run, name)
            run.run(sections()[name])


MAIL: dict[str, object] = {"kind": "receipt.send", "queue": "mail"}
KEY: dict[str, object] = MAIL | {"order_key": "customer 7"}
# A line of the table: the jobs that bring it about. The last one waits.
WAITS: dict[str, list[dict[str, object]]] = {
    "No live worker takes … from the queue …": [MAIL],
    "It is due at …": [MAIL | {"delay_ms": 3_600_000}],
    "The queue … is paused": [MAIL],
    "It waits for the end of 1 chain: …": [MAIL, MAIL | {"blockers": [1]}],
    "It waits for job …, which comes before it in the order key.": [KEY, KEY],
    "It waits for a limit: …": [MAIL | {"limits": ["mail"]}] * 2,
    "Its payload has version …": [MAIL | {"payload_version": 2}],
    "Its worker was lost while it ran: …": [MAIL],
    "It is due, and starts when a worker has a free slot …": [MAIL],
}
# Has a section of its own.
STOPPED = "Its order key … is stopped by the dead letter …"


def test_the_reasons_for_waiting_are_those_of_the_table() -> None:
    (table,) = re.findall(r"\| it says \| do \|\n(.*?)\n\n", (ROOT / PAGE).read_text("utf-8"), re.DOTALL)
    assert re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE) == [*WAITS, STOPPED]


@pytest.mark.parametrize("line", WAITS)
def test_a_job_that_waits_shows_why(line: str, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for job in WAITS[line]:
            conn.execute("SELECT holdfast.enqueue_jobs(%s)", [json.dumps([job])])
        if "limit" in line:
            conn.execute("UPDATE holdfast.job SET status = 'blocked', limit_key = limits[1]")
        if "lost" in line:
            conn.execute("UPDATE holdfast.job SET suspect = 1")
        if "version" in line or "slot" in line:
            run_sync(conn, register_worker("w", queues=["mail"], kinds=["receipt.send"]))
        if "paused" in line:
            conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('mail', true)")
        (last,) = conn.execute("SELECT max(id) FROM holdfast.job").fetchone() or ()
    output = holdfast("jobs", "show", str(last), database=database)
    assert any(matches(f"{line.removesuffix('…')}…", shown) for shown in output.out.splitlines()), output
