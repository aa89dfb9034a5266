"""Dead letters, bulk actions on them, and a process that carries these out: `python -m tests.kit.bulk URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.bulk_action import begin_bulk_action
from holdfast._store.search import Search
from tests.kit.fleet import background
from tests.kit.workers import FAILED, enqueue, job

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Worker

WAITING = ("blocked", "pending")


def dead_letters(worker: Worker, count: int, kind: str = "k") -> list[int]:
    enqueue(worker.conn, *(job(kind) for _ in range(count)))
    claimed = worker.claim(count)
    worker.end(claimed, FAILED)
    return sorted(one.id for one in claimed)


def begin(conn: psycopg.Connection[Any], action: str = "retry", **given: Any) -> int:
    statuses = given.pop("statuses", ("failed",) if action == "retry" else WAITING)
    which = Search(**{name: given.pop(name) for name in list(given) if name in Search.__dataclass_fields__})
    options: dict[str, Any] = {"due": None, "rate": None, "most": None, "expected": None, "credential": "t", **given}
    id_ = run_sync(conn, begin_bulk_action(action, which, statuses, who="ann", role="operator", **options))
    assert id_ is not None
    return id_


def retried(conn: psycopg.Connection[Any]) -> list[int]:
    return [row[0] for row in conn.execute("SELECT replay_of FROM holdfast.job ORDER BY id")]


async def main(url: str) -> None:
    async with background(url, names=("bulk_actions",)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
