"""A relay lives on while its database is restored to an earlier moment."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from holdfast import Holdfast
from tests.kit.waiting import until
from tests.relay.ledger import Ledger
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    import pytest

BEHIND = "SELECT sum(events) FROM holdfast.lag()"
NEWEST = "SELECT max(seq) FROM holdfast.position"
REWIND = "DELETE FROM holdfast.position WHERE seq > %s"


async def test_a_position_that_went_back_is_read_anew(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """The events after it are delivered again, although the worker remembers a later position."""
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    ledger = Ledger()
    app.relay("out", sold, to=ledger, lease=timedelta(seconds=2))
    async with (
        asyncio.timeout(SOON),
        app.worker(**FAST),
        await psycopg.AsyncConnection.connect(database, autocommit=True) as conn,
    ):

        async def behind() -> int:
            return int((await (await conn.execute(BEHIND)).fetchone() or [0])[0])

        async def stored() -> bool:
            return await behind() == 0

        await subscribed(conn, 1)
        await app.publish(conn, sold.new({"n": 1}))
        await until(lambda: ledger.taken == [1])
        await until(stored)
        (backup,) = await (await conn.execute(NEWEST)).fetchone() or (0,)
        await app.publish(conn, sold.new({"n": 2}))
        await until(lambda: ledger.taken == [1, 2])
        await until(stored)
        with caplog.at_level(logging.ERROR, "holdfast"):
            await conn.execute(REWIND, [backup])
            await until(lambda: ledger.taken == [1, 2, 2])
        await app.publish(conn, sold.new({"n": 3}))
        await until(lambda: ledger.taken == [1, 2, 2, 3])
    [error] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "went back: the database was restored to an earlier moment" in error.getMessage()
