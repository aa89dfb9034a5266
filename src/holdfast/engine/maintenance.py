"""The built-in runner `maintenance`: days made ahead and dropped when over, tallies folded, who is gone forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

import psycopg

from holdfast.engine.link import LOST, severed_after
from holdfast.errors import HoldfastError
from holdfast.failure import Failure
from holdfast.logs import Log
from holdfast.store.blocker import repair_blockers
from holdfast.store.census import read_census, take_census
from holdfast.store.fleet import list_workers, unserved
from holdfast.store.maintenance import (
    delete_landmarks,
    delete_messages,
    delete_replays,
    delete_sleepers,
    delete_sweeps,
    delete_watchers,
    delete_windows,
    delete_workers,
    expired_partitions,
    fold_tallies,
    unfolded_spans,
    unread_days,
)
from holdfast.store.subscription import delete_positions, delete_readers
from holdfast.store.worker import ensure_partitions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from holdfast.engine.runner import Counts, Tick
    from holdfast.engine.site import Site
    from holdfast.store.maintenance import Deletion, ExpiredPartition
    from holdfast.store.statement import Statement

    class Delete(Protocol):
        """Delete a batch of rows that end at `since` or later and are over."""

        def __call__(self, *, since: datetime | None, most: int) -> Statement[Deletion]: ...


log = Log(__name__)

MOST_SPANS = 60
MOST_PARTITIONS = 12
MOST_BLOCKERS = 1_000
# Windows and messages are deleted in batches. At a tick a minute this keeps up with 5,000 a second.
BATCH = 10_000
MOST_BATCHES = 30
# Live jobs are counted about once a tick; who looks at pages has it done more often.
CENSUS_MS = 30_000
# A restart takes some time; jobs that are due for longer wait for a worker that does not come.
UNSERVED_AFTER = timedelta(minutes=1)
MOST_UNSERVED = 20
# A command that waits for readers is called off after this long, and tried again in the next tick.
COMMAND_SECONDS = 5.0


class Maintenance:
    """Each of its steps is bounded, and what is left is for the next tick."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._link = site.link
        self._told: list[str] = []
        self._unserved: set[tuple[str, str]] = set()
        self._repaired = 0
        """The chain after which the next repair begins."""
        self._deleted: dict[str, datetime | None] = {}
        """Up to which time each table is empty. Under a held snapshot a look from the start would walk over what was
        deleted; a row that was committed late, below this time, stays until another process takes over."""

    async def tick(self, tick: Tick) -> Counts:
        """Do all that there is to do, on a connection of its own: no ending waits for a count of a million jobs."""
        async with self._site.apart() as self._link:
            return await self._tick(tick)

    async def _tick(self, tick: Tick) -> Counts:
        """Do one step after another. One that fails holds up no other; in the end all of them are told of."""
        counts: Counter[str] = Counter()
        broken: list[tuple[str, Exception]] = []
        for name, step in self._steps(tick):
            try:
                counts[name] += await step()
            except Exception as exc:
                if _unanswered(exc):
                    raise
                broken.append((name, exc))
        if broken:
            said = "; ".join(f"{name}: {Failure.of(exc).text}" for name, exc in broken)
            raise HoldfastError(said) from ExceptionGroup("maintenance", [exc for _, exc in broken])
        return {name: count for name, count in counts.items() if count}

    def _steps(self, tick: Tick) -> Iterator[tuple[str, Callable[[], Awaitable[int]]]]:
        link = self._link
        yield "partitions_made", partial(link.run, ensure_partitions())
        yield "tallies_folded", partial(self._fold, tick)
        yield "partitions_dropped", partial(self._drop, tick)
        yield "days_unread", self._warn
        yield "census", self._count
        yield "kinds_unserved", self._warn_of_unserved
        for name, step in (
            ("blockers_repaired", self._repair),
            ("sleepers_deleted", partial(link.run, delete_sleepers())),
            ("sleepers_deleted", partial(link.run, delete_sweeps())),
            ("sleepers_deleted", partial(link.run, delete_watchers())),
            ("sleepers_deleted", partial(link.run, delete_readers())),
            ("positions_deleted", partial(link.run, delete_positions())),
            ("workers_deleted", partial(link.run, delete_workers())),
            ("replays_deleted", partial(link.run, delete_replays())),
            ("landmarks_deleted", partial(link.run, delete_landmarks())),
            ("windows_deleted", partial(self._delete, tick, "windows", delete_windows)),
            ("messages_deleted", partial(self._delete, tick, "messages", delete_messages)),
        ):
            if not tick.budget.spent:
                yield name, step

    async def _count(self) -> int:
        """Count the live jobs; that is for others to read."""
        await self._link.run(take_census(every_ms=CENSUS_MS))
        return 0

    async def _warn_of_unserved(self) -> int:
        """Say it once when jobs of a kind are due for a while and no live worker takes them."""
        census = await self._link.run(read_census())
        found = {
            (line.queue, line.kind): line
            for line in unserved(census, await self._link.run(list_workers(latest=0)))
            if line.oldest_due_at is not None and census.now - line.oldest_due_at > UNSERVED_AFTER
        }
        for of in [of for of in found if of not in self._unserved][:MOST_UNSERVED]:
            extra = {"kind": found[of].kind, "queue": found[of].queue, "due": found[of].due}
            log.warning("jobs are due, and no live worker takes them", extra=extra | {"database": self._site.name})
        self._unserved = set(found)
        return 0

    async def _repair(self) -> int:
        """Tell jobs whose blockers ended unseen, from where the last tick ended. There should be none."""
        self._repaired, found = await self._link.run(repair_blockers(since=self._repaired, most=MOST_BLOCKERS))
        if found:
            log.warning(
                "jobs waited for chains that had ended, and were told now",
                extra={"chains": found, "database": self._site.name},
            )
        return found

    async def _warn(self) -> int:
        """Say it when days of the log stay past their time: somebody must see to a subscription, or skip it."""
        unread = await self._link.run(unread_days(most=MOST_PARTITIONS))
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
        for span in await self._link.run(unfolded_spans(most=tick.budget.most(MOST_SPANS))):
            if tick.budget.spent:
                return folded
            folded += await self._link.run(fold_tallies(span))
            tick.budget.spend()
        return folded

    async def _delete(self, tick: Tick, table: str, delete: Delete) -> int:
        deleted = 0
        for _ in range(MOST_BATCHES):
            done = await self._link.run(delete(since=self._deleted.get(table), most=BATCH))
            deleted += done.rows
            self._deleted[table] = done.until or self._deleted.get(table)
            if done.rows < BATCH or tick.budget.spent:
                break
        return deleted

    async def _drop(self, tick: Tick) -> int:
        expired = await self._link.run(expired_partitions(most=tick.budget.most(MOST_PARTITIONS)))
        if not expired:
            return 0
        dropped = 0
        for partition in expired:
            if tick.budget.spent:
                break
            dropped += await self._link.run_with(partial(_dropped, partition=partition))
            tick.budget.spend()
        return dropped


def _unanswered(exc: Exception) -> bool:
    """Tell whether the server said nothing: then no other step need be tried."""
    return isinstance(exc, (*LOST, TimeoutError)) and getattr(exc, "sqlstate", None) is None


async def _dropped(conn: psycopg.AsyncConnection[object], partition: ExpiredPartition) -> bool:
    """Detaching waits for readers, and cannot be done in a transaction."""
    try:
        for command in partition.commands:
            with severed_after(conn, 2 * COMMAND_SECONDS):
                async with asyncio.timeout(COMMAND_SECONDS):
                    await conn.execute(command.encode())
    except (TimeoutError, *LOST, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
        log.info("a day could not be dropped yet", extra={"partition": partition.name, "error": type(exc).__name__})
        return False
    return True
