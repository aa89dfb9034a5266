"""Sleeping readers of one process: a look counts only under a record that was there before it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast._engine.link import Link
from holdfast._relay.sleep import LogWaker


async def test_a_look_before_another_ones_record_is_repeated(database: str) -> None:
    async with Link(database, timeout=10) as link:
        bell = LogWaker(link, worker=lambda: 1, topics=["t"], heard=lambda: True, idle=(1, 1))
        one, two = bell.sleeper(), bell.sleeper()
        one.listen()
        two.listen()
        assert not await one.may_sleep()  # its look was before its own record,
        assert not await two.may_sleep()  # and so was the other's
        one.listen()
        two.listen()
        assert await one.may_sleep()
        assert await two.may_sleep()


async def test_without_listen_all_relays_poll(database: str) -> None:
    async with Link(database, timeout=10) as link:
        bell = LogWaker(link, worker=lambda: 1, topics=["t"], heard=lambda: False, idle=(1, 1))
        sleeper = bell.sleeper()
        sleeper.listen()
        assert await sleeper.may_sleep()


async def test_a_look_before_the_last_older_transaction_ended_is_repeated(database: str) -> None:
    """It looked for readers before there was a record, so its event notifies no reader."""
    async with Link(database, timeout=10) as link, await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT pg_current_xact_id()")
        bell = LogWaker(link, worker=lambda: 1, topics=["t"], heard=lambda: True, idle=(60, 60))
        sleeper = bell.sleeper()
        assert not await sleeper.may_sleep()
        sleeper.listen()
        await asyncio.wait_for(sleeper.sleep(60), 5)  # lightly
        assert await sleeper.may_sleep()
        await other.commit()
        await asyncio.wait_for(sleeper.sleep(60), 5)
        assert not await sleeper.may_sleep()
        sleeper.listen()
        assert await sleeper.may_sleep()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sleeper.sleep(60), 1)  # soundly
