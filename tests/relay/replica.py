"""One process of a relay, as a fleet has several: `python -m tests.relay.replica DATABASE NATS NAME`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from holdfast import Holdfast
from holdfast._relay.sinks.nats import NatsSink

LEASE = timedelta(seconds=1.5)


async def main(database: str, broker: str, name: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=NatsSink(broker), partitions=4, lease=LEASE)
    async with app.worker(id=name, idle_min=timedelta(milliseconds=20), idle_max=timedelta(milliseconds=100)):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
