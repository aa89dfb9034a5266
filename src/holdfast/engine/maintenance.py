"""The built-in runner `maintenance`: days made ahead and dropped when over, tallies folded, who is gone forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

import psycopg

from holdfast.engine.link import CONNECT, LOST, severed_after
from holdfast.store.census import take_census
from holdfast.store.maintenance import (
    delete_landmarks,
    delete_replays,
    delete_sleepers,
    delete_sweeps,
    delete_watchers,
    delete_workers,
    expired_partitions,
    fold_tallies,
    unfolded_spans,
    unread_days,
)
from holdfast.store.subscription import delete_positions, delete_readers
from holdfast.store.worker import ensure_partitions

if TYPE_CHECKING:
    from holdfast.engine.runner import Counts, Tick
    from holdfast.engine.site import Site
    from holdfast.store.maintenance import ExpiredPartition

log = logging.getLogger(__name__)

MOST_SPANS = 60
MOST_PARTITIONS = 12
# Live jobs are counted about once a tick; who looks at pages has it done more often.
CENSUS_MS = 30_000
# A command that waits for readers is called off after this long, and tried again in the next tick.
COMMAND_SECONDS = 5.0


class Maintenance:
    """Each of its steps is bounded, and what is left is for the next tick."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._told: list[str] = []

    async def tick(self, tick: Tick) -> Counts:
        link = self._site.link
        counts: Counter[str] = Counter()
        counts["partitions_made"] = await link.run(ensure_partitions())
        counts["tallies_folded"] = await self._fold(tick)
        counts["partitions_dropped"] = await self._drop(tick)
        counts["days_unread"] = await self._warn()
        await link.run(take_census(every_ms=CENSUS_MS))
        for name, statement in (
            ("sleepers_deleted", delete_sleepers()),
            ("sleepers_deleted", delete_sweeps()),
            ("sleepers_deleted", delete_watchers()),
            ("sleepers_deleted", delete_readers()),
            ("positions_deleted", delete_positions()),
            ("workers_deleted", delete_workers()),
            ("replays_deleted", delete_replays()),
            ("landmarks_deleted", delete_landmarks()),
        ):
            if not tick.budget.spent:
                counts[name] += await link.run(statement)
        return {name: count for name, count in counts.items() if count}

    async def _warn(self) -> int:
        """Say it when days of the log stay past their time: somebody must see to a subscription, or skip it."""
        unread = await self._site.link.run(unread_days(most=MOST_PARTITIONS))
        if unread and unread != self._told:
            log.warning(
                "events are kept past their time, since a subscription has not read them: see `holdfast events`, then "
                "get it going, `skip` or `delete` it",
                extra={"partitions": unread, "database": self._site.name},
            )
        self._told = unread
        return len(unread)

    async def _fold(self, tick: Tick) -> int:
        folded = 0
        for span in await self._site.link.run(unfolded_spans(most=tick.budget.most(MOST_SPANS))):
            if tick.budget.spent:
                return folded
            folded += await self._site.link.run(fold_tallies(span))
            tick.budget.spend()
        return folded

    async def _drop(self, tick: Tick) -> int:
        expired = await self._site.link.run(expired_partitions(most=tick.budget.most(MOST_PARTITIONS)))
        if not expired:
            return 0
        dropped = 0
        # Detaching waits for readers, so it has a connection of its own; and it cannot be done in a transaction.
        async with await psycopg.AsyncConnection.connect(
            self._site.url, autocommit=True, prepare_threshold=None, **CONNECT
        ) as conn:
            for partition in expired:
                if tick.budget.spent or conn.closed:
                    break
                dropped += await _dropped(conn, partition)
                tick.budget.spend()
        return dropped


async def _dropped(conn: psycopg.AsyncConnection[object], partition: ExpiredPartition) -> bool:
    try:
        for command in partition.commands:
            with severed_after(conn, 2 * COMMAND_SECONDS):
                async with asyncio.timeout(COMMAND_SECONDS):
                    await conn.execute(command.encode())
    except (TimeoutError, *LOST, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
        log.info("a day could not be dropped yet", extra={"partition": partition.name, "error": type(exc).__name__})
        return False
    return True
