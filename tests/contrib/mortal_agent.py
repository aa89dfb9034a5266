"""A worker that is killed at every checkpoint and started again: `python -m tests.contrib.mortal_agent before|after`.

Each life is a process that ends by SIGKILL: `after` a new checkpoint, or `before` the first one that no life has died
before. The last one stops when its standard input ends. Lives share what is imported before the first one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import psycopg
import pydantic_ai.models.openai  # noqa: F401 - the first request of each life would import it

from examples.agent.support.agent import answer
from examples.agent.support.app import app
from holdfast._drivers import run_sync
from holdfast._engine.jobs.journal import Journal
from holdfast._store.lease import reap_jobs
from tests.kit.pace import AT_ONCE, QUICK

MOMENT = sys.argv[1]


class Life:
    """The checkpoints of a process until its death."""

    def __init__(self, spared: int) -> None:
        """`spared`: how many new checkpoints it records before it dies at the next."""
        self._spared = spared

    def at(self, moment: str) -> None:
        if moment == MOMENT:
            if not self._spared:
                os.kill(os.getpid(), signal.SIGKILL)
            self._spared -= 1


def watch(life: Life) -> None:
    """Call `life.at` before and after everything that a story records."""
    save, receive, kept, commit = Journal.save, Journal.receive, Journal.kept, psycopg.AsyncConnection.commit
    in_transaction = False

    async def watched_save(self: Journal, *args: Any) -> None:
        life.at("before")
        await save(self, *args)
        life.at("after")

    async def watched_receive(self: Journal, step: Any, limit: Any, found: Any, by: object) -> Any:
        if found is None:
            life.at("before")
        due, text = await receive(self, step, limit, found, by)
        if found is None or (found.state == "waits" and due is None):
            life.at("after")
        return due, text

    def watched_kept(self: Journal, *args: Any) -> None:
        nonlocal in_transaction
        life.at("before")
        kept(self, *args)
        in_transaction = True

    async def watched_commit(self: Any) -> None:
        nonlocal in_transaction
        await commit(self)
        if in_transaction:
            life.at("after")
        in_transaction = False

    for owner, name, watched in (
        (Journal, "save", watched_save),
        (Journal, "receive", watched_receive),
        (Journal, "kept", watched_kept),
        (psycopg.AsyncConnection, "commit", watched_commit),
    ):
        setattr(owner, name, watched)


async def work() -> None:
    async with app.worker(**QUICK):
        await asyncio.to_thread(sys.stdin.read)


def recover() -> None:
    """Take back what a life held, as the reaper of the next one would do once the lease has run out."""
    with psycopg.connect(app.url, autocommit=True) as conn:
        conn.execute("UPDATE holdfast.job SET locked_until = now() WHERE status = 'processing'")
        run_sync(conn, reap_jobs({answer.name: AT_ONCE}))


def main() -> None:
    for life in range(50):
        if (pid := os.fork()) == 0:
            watch(Life(1 if MOMENT == "before" and life else 0))
            asyncio.run(work())
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.waitstatus_to_exitcode(status))
        recover()
        print("killed", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
