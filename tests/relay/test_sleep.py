"""Sleeping readers of one process: a look counts only under a record that was there before it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast._engine.link import Link, Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.session import Session
from holdfast._relay.sleep import LogWaker


def session(url: str, *, listening: bool) -> Session:
    made = Session(Links(url, name="", timeout=10), OwnRow(1))
    if listening:
        made.listening.set()
    return made


async def test_a_look_before_another_ones_record_is_repeated(database: str) -> None:
    async with Link(database, timeout=10) as link:
        waker = LogWaker(link, session(database, listening=True), topics=["t"], idle=(1, 1))
        one, two = waker.sleeper(), waker.sleeper()
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
        waker = LogWaker(link, session(database, listening=False), topics=["t"], idle=(1, 1))
        sleeper = waker.sleeper()
        sleeper.listen()
        assert await sleeper.may_sleep()


async def test_a_look_before_the_last_older_transaction_ended_is_repeated(database: str) -> None:
    """It looked for readers before there was a record, so its event notifies no reader."""
    async with Link(database, timeout=10) as link, await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT pg_current_xact_id()")
        waker = LogWaker(link, session(database, listening=True), topics=["t"], idle=(60, 60))
        sleeper = waker.sleeper()
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
