"""The disk of the primary fills."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from labs.chaos.fault import Fault
from labs.chaos.ground import DISK

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Site
    from labs.chaos.ground import Node

# The space that is left: a little, so that it runs out in the middle of a write.
MOST_LEFT = 4 * 2**20
# A server that recovers from its whole log on a loaded machine has needed more than a minute.
SECONDS = 180.0


@asynccontextmanager
async def filled(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Leave no room; then make some, and start the server again if that ended it.

    A table that cannot grow fails a statement; a log that cannot grow ends the server. Both are allowed.
    """
    node = site.ground.primary
    if not node.mounted:
        site.say("left out: the disk cannot be filled, for this machine lets us mount no volume")
        yield
        return
    await asyncio.to_thread(leave, node, dice.randint(0, MOST_LEFT))
    try:
        await asyncio.sleep(dice.uniform(1, 5))
        yield
    finally:
        await asyncio.to_thread(resize, node, DISK)
        if await answers(node):
            site.say(f"the full disk ended the server {node.name}")


def leave(node: Node, room: int) -> None:
    """Make the volume of the data so small that only so many bytes are free."""
    found = os.statvfs(node.folder)
    resize(node, str((found.f_blocks - found.f_bfree) * found.f_frsize + room))


def resize(node: Node, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", node.folder], check=True, capture_output=True)


async def answers(node: Node) -> bool:
    """Wait until the server answers, and start it if it has ended; whether that was so."""
    ended = False
    async with asyncio.timeout(SECONDS):
        while True:
            if not node.running:
                ended = True
                await node.open()
            try:
                async with await psycopg.AsyncConnection.connect(node.url(), connect_timeout=5):
                    return ended
            except psycopg.OperationalError:
                await asyncio.sleep(0.05)


FAULTS = (Fault("disk full", filled, alone=True),)
