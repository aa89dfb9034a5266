"""Draw docs/screenshots/top.svg: `holdfast top` over a live worker.

    python tools/top_picture.py [docs/screenshots/top.svg [KEYS]]

KEYS are pressed first, e.g. "7" for jobs. An hour is not waited for: after each round of work,
what was tallied is moved to a minute of the past.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._app.app import Holdfast
    from holdfast._ops.responses.fleet import UnservedKind
    from holdfast._top.database import DatabaseScreen

sys.path.insert(0, str(Path(__file__).parents[1]))

SIZE = (104, 22)
MINUTES = 60
SECONDS = 60.0
# The exported picture asks for a font of a third-party server, and names its maker.
_LEFT_OUT = re.compile(r"@font-face \{.*?\}\s*|<!-- Generated.*?-->\s*", re.DOTALL)


def shop(url: str, gate: asyncio.Event) -> Holdfast:
    from holdfast import Holdfast, Job
    from holdfast._model.retry import Retry
    from holdfast._model.schedule import Every

    app = Holdfast(url)

    @app.job("mail.send", queue="mail")
    async def send(_: Job[None]) -> None:
        await asyncio.sleep(0.001)

    @app.job("invoice.render", queue="pdf", retry=Retry(max_attempts=1))
    async def render(_: Job[None], number: int) -> None:
        if number % 29 == 0:
            raise TimeoutError("the printer did not answer within 5 s")

    @app.job("order.ship")
    async def ship(_: Job[None]) -> None:
        await asyncio.sleep(0.002)

    @app.job("report.build", queue="reports")
    async def build(_: Job[None]) -> None:
        await gate.wait()

    @app.runner("sweep", every=Every(timedelta(hours=1)))
    async def sweep(_: object) -> dict[str, int]:
        return {"swept": 12}

    return app


async def work_an_hour(app: Holdfast, conn: psycopg.AsyncConnection[Any], chance: random.Random) -> None:
    kinds: dict[str, Any] = dict(app.kinds)
    row = await (await conn.execute("SELECT date_trunc('minute', now())")).fetchone()
    assert row is not None
    began, number = row[0], 0
    for minute in range(MINUTES):
        busy = 40 + 25 * ((minute // 12) % 3) + chance.randrange(20)
        await app.enqueue_many(conn, [kinds["mail.send"].new() for _ in range(busy)])
        await app.enqueue_many(conn, [kinds["order.ship"].new() for _ in range(busy // 2)])
        await app.enqueue_many(conn, [kinds["invoice.render"].new(n) for n in range(number, number + 12)])
        number += 12
        await until_idle(conn)
        past = began - timedelta(minutes=MINUTES - minute)
        await conn.execute("UPDATE holdfast.tally SET minute = %s WHERE minute >= %s", [past, began])
    await conn.execute("UPDATE holdfast.tally SET minute = minute + (date_trunc('minute', now()) - %s)", [began])


async def until_idle(conn: psycopg.AsyncConnection[Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            row = await (await conn.execute("SELECT count(*) FROM holdfast.job WHERE queue <> 'reports'")).fetchone()
            if row == (0,):
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def busy_shop(url: str) -> AsyncIterator[None]:
    """Work an hour's work, then leave a backlog, a running job, and a kind that no worker serves."""
    gate = asyncio.Event()
    app = shop(url, gate)
    kinds: dict[str, Any] = dict(app.kinds)
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as conn,
        app.worker(id="shop-1", queues={"default": 10, "mail": 10, "pdf": 4, "reports": 3}),
        app.worker(id="shop-2", queues={"default": 10, "mail": 10}),
    ):
        await app.enqueue_many(conn, [kinds["report.build"].new() for _ in range(40)])
        await work_an_hour(app, conn, random.Random(7))
        await conn.execute(
            "SELECT holdfast.enqueue('label.print', '{}'::json, 'labels', 5, 3) FROM generate_series(1, 4)"
        )
        yield
        gate.set()


def _unserved(screen: DatabaseScreen) -> list[UnservedKind]:
    return screen.reading.overview.unserved if screen.reading.overview else []


async def draw(url: str, keys: list[str]) -> str:
    from holdfast._ops.caller import Person, Role
    from holdfast._ops.service import Service
    from holdfast._top.application import Top
    from holdfast._top.database import DatabaseScreen
    from holdfast._top.screen import ShownDatabase

    async with busy_shop(url), Service(url, connections=1) as service:
        shop = ShownDatabase(service, "shop@db.example")
        top = Top([shop], Person("cli:ann", Role.DEVELOPER), interval=0.5)
        async with top.run_test(size=SIZE) as pilot:
            screen = top.screen
            assert isinstance(screen, DatabaseScreen)
            async with asyncio.timeout(SECONDS):
                while not any(kind.kind == "label.print" for kind in _unserved(screen)):  # noqa: ASYNC110 - a screen is looked at
                    await asyncio.sleep(0.05)
            await pilot.press(*keys)
            seen = screen.looks
            async with asyncio.timeout(SECONDS):
                while screen.looks < seen + 2:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
            await pilot.pause()
            return _LEFT_OUT.sub("", top.export_screenshot())


def main() -> None:
    from holdfast._store.schema import migrate
    from tools.postgres import Server

    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots/top.svg")
    keys = sys.argv[2].split() if len(sys.argv) > 2 else []
    with Server(15, jit="off") as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        target.write_text(asyncio.run(draw(server.url(), keys)))
    print(target)


if __name__ == "__main__":
    main()
