"""One replica of a fleet, as a process of its own: `python -m tests.engine.replica URL NAME`.

It runs the cycle `bill`, writes each start and each end to the table `bill`, and between them passes a gate that the
test can hold shut.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta

import psycopg

from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._model.schedule import Every
from tests.kit.fleet import MS, background, fast

TABLES = """
CREATE TABLE bill (slot timestamptz, replica text, attempt int, ended bool NOT NULL DEFAULT false);
CREATE TABLE gate AS SELECT;
CREATE TABLE up (replica text PRIMARY KEY)
"""
SHUT = "SELECT FROM gate FOR UPDATE"


async def main(url: str, name: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:

        async def bill(tick: Tick) -> Counts:
            row = [tick.slot, name, tick.attempt]
            await conn.execute("INSERT INTO bill (slot, replica, attempt) VALUES (%s, %s, %s)", row)
            await conn.execute("SELECT FROM gate FOR SHARE")
            ended = "UPDATE bill SET ended = true WHERE slot = %s AND replica = %s AND attempt = %s"
            await conn.execute(ended, row)
            return {"billed": 1}

        runner = Runner("bill", bill, every=Every(timedelta(hours=1)), singleton=True, at_start=False)
        # A replica that is held up by the others' load must not lose its slot.
        async with background(url, runner, settings=fast(lease=6_000 * MS)):
            await conn.execute("INSERT INTO up VALUES (%s)", [name])
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
