"""A Celery project of twenty tasks, ported with the guide alone: the same results."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Handle
from labs.bench.peers.place import place
from tests.kit.pace import QUICK
from tests.moving import ported_project as ported

PEERS = Path(__file__).parent / "peers"
RECORDED: dict[str, Any] = json.loads((PEERS / "celery_project.json").read_text())
CELERY = ("celery==5.7.0", "redis==8.1.0", "packaging")
# The errors of the platform itself have other names: a limit of time, and an expiry.
NAMES = {"TimeoutError": "TimeLimitExceeded", "expired": "TaskRevokedError"}

if TYPE_CHECKING:
    from holdfast import NewJob

CALLS: dict[str, NewJob[Any]] = {
    "add": ported.add.new(2, 3),
    "greet": ported.greet.new("Ada", polite=True).options(priority=1),
    "flaky": ported.flaky.new(),
    "always_down": ported.always_down.new(),
    "gone": ported.gone.new(),
    "wrong": ported.wrong.new(),
    "again": ported.again.new(),
    "soon": ported.soon.new(),
    "later": ported.double.new(4).options(delay=1),
    "chain": ported.add_and_double.new(1, 2),
    "group in a chain": ported.split.new(4),
    "tidy": ported.tidy.new(),
    "hang": ported.hang.new(),
    "headers": ported.headers.new().options(headers={"tenant": "a"}),
    "expired": ported.double.new(1).options(delay=2, expires=2.1, queue="late"),
    "limited": ported.limited.new(5),
    "measured": ported.measured.new(),
    "silent": ported.silent.new(),
    "wrong, reported": ported.wrong.new().options(on_failure=ported.report.new("wrong")),
}
GROUPS: dict[str, tuple[list[NewJob[Any]], NewJob[Any]]] = {
    "chord": ([ported.square.new(n) for n in range(5)], ported.total.new()),
    "chunks": ([ported.add.new(n, n) for n in range(6)], ported.results.new(2)),
    "starmap": ([ported.add.new(*pair) for pair in ((1, 2), (3, 4))], ported.results.new()),
}


async def ended(handle: Handle[Any]) -> list[Any]:
    try:
        return ["completed", await ported.app.wait(handle, timeout=60)]
    except ChainFailed as failed:
        name = failed.error_code or ""
        return ["failed", NAMES.get(name, name), failed.error]


async def test_the_port_ends_as_celery_did(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    monkeypatch.setattr(ported.app, "url", database)
    app = ported.app
    async with await psycopg.AsyncConnection.connect(database) as conn:
        handles = {name: await app.enqueue(conn, job) for name, job in CALLS.items()}
        for name, (jobs, last) in GROUPS.items():
            handles[name] = await app.enqueue_group(conn, jobs, then=last)
    queues = {"default": 8, "processes": 1}
    async with app.worker(queues=queues, **QUICK):
        found = {name: await ended(handle) for name, handle in handles.items() if name != "expired"}
    async with app.worker(queues=queues | {"late": 1}, **QUICK):
        found["expired"] = await ended(handles["expired"])
    async with await psycopg.AsyncConnection.connect(database) as conn:
        rows = await conn.execute("SELECT result #>> '{}' FROM holdfast.job_history WHERE kind = 'report'")
        found["report"] = ["completed", *[result for (result,) in await rows.fetchall()]]
    for name in ("hang", "expired"):  # the words are each one's own
        found[name][2] = RECORDED[name][2]
    assert found == RECORDED


@pytest.mark.prove
def test_celery_ends_as_it_was_recorded() -> None:
    if (url := os.environ.get("CELERY_PROJECT_URL")) is None:
        pytest.skip("CELERY_PROJECT_URL names no Redis whose database may be emptied")
    python = place("celery-redis", python=CELERY) / "bin" / "python"
    done = subprocess.run(  # noqa: S603 - our own program
        [str(python), str(PEERS / "celery_project.py")],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
        env=os.environ | {"CELERY_PROJECT_URL": url},
    )
    assert json.loads(done.stdout) == RECORDED
