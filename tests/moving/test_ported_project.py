"""A Celery project of twenty tasks, ported with the guide alone: the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis

from holdfast import ChainFailed, Handle
from labs.bench.peers.place import place
from tests.kit.commands import PATIENCE, Running, children, environment
from tests.kit.pace import BRIEF, QUICK
from tests.kit.sessions import await_condition
from tests.kit.waiting import until_true
from tests.moving import ported_project as ported
from tools.redis import RedisServer

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
RECORDED: dict[str, Any] = json.loads((PEERS / "celery_project.json").read_text())
CELERY = ("celery==5.7.0", "redis==8.1.0", "packaging", "psycopg[binary]==3.3.8", "pydantic", "cronsim")
# The errors of the platform itself have other names: a limit of time, and an expiry.
NAMES = {"TimeoutError": "TimeLimitExceeded", "expired": "TaskRevokedError"}

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await conn.execute("SELECT pg_sleep_until(expires_at) FROM holdfast.job WHERE queue = 'late'")
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
    python = place("celery-redis", python=CELERY) / "bin" / "python"
    with RedisServer() as server:
        done = subprocess.run(  # noqa: S603 - our own program
            [str(python), str(PEERS / "celery_project.py")],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
            env=os.environ | {"CELERY_PROJECT_URL": server.url},
        )
    assert json.loads(done.stdout) == RECORDED


# What waits in Celery: enough that both sides are killed while it moves, then each task that starts nothing else.
WAITING = """
import json
from celery_project import *
sent = [add.delay(n, n) for n in range(300)]
sent += [greet.apply_async(("Ada",), {"polite": True}, priority=1), flaky.delay(), always_down.delay(), gone.delay()]
sent += [wrong.delay(), again.delay(), soon.delay(), double.apply_async((4,), countdown=1), tidy.delay()]
sent += [limited.delay(5), measured.delay(), silent.delay()]
print(json.dumps([task.id for task in sent]))
"""
MOVED = ("greet", "flaky", "always_down", "gone", "wrong", "again", "soon", "tidy", "limited", "measured", "silent")


@contextmanager
def bridge(variables: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Celery's worker with the tasks of the switch, and kill it and its children if it has not ended."""
    python = str(place("celery-redis", python=CELERY) / "bin" / "python")
    command = [python, "-m", "celery", "-A", "celery_switch", "worker", "-c", "2", "--loglevel", "INFO"]
    with (
        log.open("ab") as output,
        subprocess.Popen(  # noqa: S603 - our own program
            command, cwd=PEERS, env=variables, stdout=output, stderr=output, process_group=0
        ) as worker,
    ):
        try:
            yield worker
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.prove
def test_what_waited_in_celery_survives_the_kill_of_either_side(
    database: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    pace = {name: value for name, value in BRIEF.items() if name != "jitter"}
    brief = {f"HOLDFAST_{name.upper()}_MS": str(value // timedelta(milliseconds=1)) for name, value in pace.items()}

    def work() -> Running:
        return Running("worker", "ported_project:app", database=database, cwd=PEERS.parent, **brief)

    def await_ended(jobs: int) -> None:
        ended = "(SELECT count(*) FROM holdfast.job_history) + (SELECT count(*) FROM holdfast.job_failed)"
        await_condition(conn, f"{ended} >= {jobs}", seconds=60)

    with RedisServer() as server:
        paths = os.pathsep.join(map(str, (ROOT / "src", PEERS, PEERS.parent)))
        variables = environment(database, CELERY_PROJECT_URL=server.url, PYTHONPATH=paths)
        python = str(place("celery-redis", python=CELERY) / "bin" / "python")
        sent = json.loads(subprocess.check_output([python, "-c", WAITING], env=variables, timeout=PATIENCE))  # noqa: S603
        log = tmp_path / "celery.log"
        with work() as worker, bridge(variables, log) as celery:
            await_ended(40)
            os.killpg(celery.pid, signal.SIGKILL)
            worker.signal(signal.SIGKILL)
        with work() as worker, bridge(variables, log) as celery:
            await_ended(80)
            os.kill(children(celery.pid)[0], signal.SIGKILL)
            worker.signal(signal.SIGKILL)
            with work(), redis.Redis.from_url(server.url) as broker:
                await_ended(len(sent))
                # One that was committed and not acknowledged is delivered again, and recognised.
                until_true(lambda: (broker.llen("celery"), broker.hlen("unacked")) == (0, 0), seconds=60)
    received = conn.execute("SELECT message_id FROM holdfast.inbox WHERE consumer = 'celery'").fetchall()
    assert sorted(received) == sorted((task,) for task in sent)
    found = [
        (kind, ["completed", result]) for kind, result in conn.execute("SELECT kind, result FROM holdfast.job_history")
    ] + [
        (kind, ["failed", NAMES.get(code, code), error])
        for kind, code, error in conn.execute("SELECT kind, last_error_code, last_error FROM holdfast.job_failed")
    ]
    assert sorted(end[1] for kind, end in found if kind == "add") == [2 * n for n in range(300)]
    others = [(kind, end) for kind, end in found if kind != "add"]
    assert sorted(others) == sorted([*((name, RECORDED[name]) for name in MOVED), ("double", RECORDED["later"])])
    assert conn.execute("SELECT FROM holdfast.job").fetchall() == []
