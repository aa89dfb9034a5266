"""The built-in runner `maintenance`: creates and drops daily partitions, folds tallies, deletes expired rows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

import psycopg

from holdfast._engine.link import LOST, severed_after
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._store.archive import clock_is_doubted, set_archived
from holdfast._store.bulk_action import delete_bulk_actions
from holdfast._store.chain import delete_groups, delete_kept_ends, repair_blockers
from holdfast._store.inspect import read_census, take_census
from holdfast._store.limit import delete_limit_rates, mend_limits
from holdfast._store.maintenance import (
    delete_dismissals,
    delete_landmarks,
    delete_messages,
    delete_replays,
    delete_sleepers,
    delete_sweeps,
    delete_watchers,
    delete_windows,
    delete_workers,
    expired_partitions,
    unread_days,
)
from holdfast._store.schedule import end_lost_runs
from holdfast._store.subscription import delete_positions, delete_readers
from holdfast._store.tally import fold_tallies, unfolded_spans
from holdfast._store.trend import keep_census
from holdfast._store.worker import ensure_partitions, list_workers, partition_lockers, unserved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from holdfast._engine.runner import Counts, Tick
    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._store.maintenance import Deletion, ExpiredPartition
    from holdfast._store.statement import Statement

    class Delete(Protocol):
        """Delete a batch of expired rows that end at `since` or later."""

        def __call__(self, *, since: datetime | None, limit: int) -> Statement[Deletion]: ...


log = Log(__name__)

MOST_SPANS = 60
MOST_PARTITIONS = 12
MOST_BLOCKERS = 1_000
# Windows and messages are deleted in batches. At one tick per minute this keeps up with 5,000 per second.
BATCH = 10_000
MOST_BATCHES = 30
# Live jobs are counted about once per tick; open dashboard pages have it done more often.
CENSUS_MS = 30_000
# A restart takes some time. Jobs that are due for longer than this have no worker.
UNSERVED_AFTER = timedelta(minutes=1)
MOST_UNSERVED = 20
# A command that waits for readers is cancelled after this many seconds, and retried in the next tick.
COMMAND_SECONDS = 5.0


class Maintenance:
    """Maintains one database. Each step is bounded, and leaves the rest to the next tick."""

    def __init__(self, database: RunnerDatabase, *, archives: bool = False) -> None:
        """Maintain this database. `archives`: keep days until they are archived; False changes nothing."""
        self._database = database
        self._archives = archives
        self._link = database.link
        self._warned_of: list[str] = []
        self._doubted = False
        self._unserved: set[tuple[str, str]] = set()
        self._repaired = 0
        """The chain after which the next repair starts."""
        self._mended: str | None = None
        """The key of a limit after which the next pass starts."""
        self._cleared = 0
        self._cleared_groups = 0
        """The kept end after which the next deletion starts."""
        self._deleted: dict[str, datetime | None] = {}
        """By table: the time up to which it is empty. Under a held snapshot, a scan from the start would read all
        deleted rows again. A row that was committed late, before this time, stays until another process takes over."""

    async def tick(self, tick: Tick) -> Counts:
        """Do all maintenance on a separate connection, so that outcomes do not wait for a count of a million jobs."""
        async with self._database.apart() as self._link:
            return await self._tick(tick)

    async def _tick(self, tick: Tick) -> Counts:
        """Run all steps in order. A failed step does not stop the others; all failures are raised at the end."""
        broken: list[tuple[str, Exception]] = []
        for name, step in self._steps(tick):
            try:
                if done := await step():
                    tick.count(name, done)
            except Exception as exc:  # noqa: BLE001 - the probe raises if the database is the cause
                if isinstance(exc, (*LOST, TimeoutError)):
                    await self._link.probe()
                broken.append((name, exc))
        if broken:
            reasons = "; ".join(f"{name}: {Failure.of(exc).text}" for name, exc in broken)
            raise HoldfastError(reasons) from ExceptionGroup("maintenance", [exc for _, exc in broken])
        return tick.counts

    def _steps(self, tick: Tick) -> Iterator[tuple[str, Callable[[], Awaitable[int]]]]:
        link = self._link
        yield "retention", self._keep_for_archive
        yield "clock", self._doubt
        yield "partitions_made", self._make_partitions
        yield "tallies_folded", partial(self._fold, tick)
        yield "partitions_dropped", partial(self._drop, tick)
        yield "days_unread", self._warn
        yield "census", self._count
        yield "kinds_unserved", self._warn_of_unserved
        for name, step in (
            ("blockers_repaired", self._repair),
            ("limits_mended", self._mend_limits),
            ("rates_deleted", partial(link.run, delete_limit_rates())),
            ("ends_deleted", partial(self._delete_ends, tick)),
            ("sleepers_deleted", partial(link.run, delete_sleepers())),
            ("sleepers_deleted", partial(link.run, delete_sweeps())),
            ("sleepers_deleted", partial(link.run, delete_watchers())),
            ("sleepers_deleted", partial(link.run, delete_readers())),
            ("positions_deleted", partial(link.run, delete_positions())),
            ("runs_lost", partial(link.run, end_lost_runs())),
            ("workers_deleted", partial(link.run, delete_workers())),
            ("replays_deleted", partial(link.run, delete_replays())),
            ("dismissals_deleted", partial(link.run, delete_dismissals())),
            ("bulk_actions_deleted", partial(link.run, delete_bulk_actions())),
            ("landmarks_deleted", partial(link.run, delete_landmarks())),
            ("windows_deleted", partial(self._delete, tick, "windows", delete_windows)),
            ("messages_deleted", partial(self._delete, tick, "messages", delete_messages)),
        ):
            if not tick.budget.spent:
                yield name, step

    async def _keep_for_archive(self) -> int:
        """Have days kept until they are archived, once, so that a person can end it while this worker runs."""
        if self._archives:
            await self._link.run(set_archived(archived=True))
            self._archives = False
        return 0

    async def _doubt(self) -> int:
        """Log once that nothing expires: the clock leapt, or nothing recorded it for more than a day."""
        doubted = await self._link.run(clock_is_doubted())
        if doubted and not self._doubted:
            log.warning(
                "nothing expires until the server's clock has gone on for a day: it leapt, or no maintenance ran for a "
                "day. If it is right, run `holdfast retention confirm`",
                extra={"database": self._database.name},
            )
        self._doubted = doubted
        return 0

    async def _make_partitions(self) -> int:
        """Create partitions ahead. If a session blocks that for too long, log which one; the next tick tries again."""
        try:
            return await self._link.run(ensure_partitions())
        except psycopg.errors.LockNotAvailable:
            for locker in await self._link.run(partition_lockers()):
                extra = locker._asdict() | {"database": self._database.name}
                log.warning("partitions could not be made: a session holds a lock", extra=extra)
            raise

    async def _count(self) -> int:
        """Count the live jobs and store the result."""
        await self._link.run(take_census(every_ms=CENSUS_MS))
        await self._link.run(keep_census())
        return 0

    async def _warn_of_unserved(self) -> int:
        """Log once when jobs of a kind have been due for a while and no live worker takes them."""
        census = await self._link.run(read_census())
        found = {
            (line.queue, line.kind): line
            for line in unserved(census, await self._link.run(list_workers(latest=0)))
            if line.oldest_due_at is not None and census.now - line.oldest_due_at > UNSERVED_AFTER
        }
        for of in [of for of in found if of not in self._unserved][:MOST_UNSERVED]:
            extra = {"kind": found[of].kind, "queue": found[of].queue, "due": found[of].due}
            log.warning("jobs are due, and no live worker takes them", extra=extra | {"database": self._database.name})
        self._unserved = set(found)
        return 0

    async def _repair(self) -> int:
        """Unblock jobs whose blockers ended unnoticed, starting where the last tick ended. There should be none."""
        self._repaired, found = await self._link.run(repair_blockers(since=self._repaired, limit=MOST_BLOCKERS))
        if found:
            log.warning(
                "jobs waited for chains that had ended, and are released now",
                extra={"chains": found, "database": self._database.name},
            )
        return found

    async def _mend_limits(self) -> int:
        """Promote jobs that wait for a limit with room, from where the last tick ended. There should be none."""
        self._mended, found = await self._link.run(mend_limits(since=self._mended, limit=MOST_BLOCKERS))
        if found:
            extra = {"keys": found, "database": self._database.name}
            log.warning("jobs waited for limits that had room, and go on now", extra=extra)
        return found

    async def _delete_ends(self, tick: Tick) -> int:
        """Delete the ends that were kept for jobs that have left since, and the rows of their groups."""
        deleted = 0
        for _ in range(MOST_BATCHES):
            self._cleared, gone = await self._link.run(delete_kept_ends(since=self._cleared, limit=MOST_BLOCKERS))
            deleted += gone
            if not self._cleared or tick.budget.spent:
                break
        for _ in range(MOST_BATCHES):
            self._cleared_groups, gone = await self._link.run(
                delete_groups(since=self._cleared_groups, limit=MOST_BLOCKERS)
            )
            deleted += gone
            if not self._cleared_groups or tick.budget.spent:
                break
        return deleted

    async def _warn(self) -> int:
        """Log when days of the event log stay too long: an operator must fix a subscription, or skip it."""
        unread = await self._link.run(unread_days(limit=MOST_PARTITIONS))
        if unread and unread != self._warned_of:
            log.warning(
                "events are kept past their time, since a subscription has not read them: see `holdfast events`, then "
                "get it going, `skip` or `delete` it",
                extra={"partitions": unread, "database": self._database.name},
            )
        self._warned_of = unread
        return len(unread)

    async def _fold(self, tick: Tick) -> int:
        folded = 0
        broken: list[Exception] = []
        for span in await self._link.run(unfolded_spans(limit=tick.budget.limit(MOST_SPANS))):
            if tick.budget.spent:
                break
            try:
                folded += await self._link.run(fold_tallies(span))
            except Exception as exc:  # noqa: BLE001 - the probe raises if the database is the cause
                await self._link.probe()
                broken.append(exc)
            tick.budget.spend()
        if broken:
            raise broken[0]
        return folded

    async def _delete(self, tick: Tick, table: str, delete: Delete) -> int:
        deleted = 0
        for _ in range(MOST_BATCHES):
            done = await self._link.run(delete(since=self._deleted.get(table), limit=BATCH))
            deleted += done.rows
            self._deleted[table] = done.until or self._deleted.get(table)
            if done.rows < BATCH or tick.budget.spent:
                break
        return deleted

    async def _drop(self, tick: Tick) -> int:
        expired = await self._link.run(expired_partitions(limit=tick.budget.limit(MOST_PARTITIONS)))
        if not expired:
            return 0
        dropped = 0
        broken: list[Exception] = []
        for partition in expired:
            if tick.budget.spent:
                break
            try:
                dropped += await self._link.run_with(partial(_dropped, partition=partition))
            except Exception as exc:  # noqa: BLE001 - the probe raises if the database is the cause
                await self._link.probe()
                broken.append(exc)
            tick.budget.spend()
        if broken:
            raise broken[0]
        return dropped


async def _dropped(conn: psycopg.AsyncConnection[object], partition: ExpiredPartition) -> bool:
    """Drop a partition. Detaching waits for readers, and cannot run in a transaction."""
    try:
        for command in partition.commands:
            with severed_after(conn, 2 * COMMAND_SECONDS):
                async with asyncio.timeout(COMMAND_SECONDS):
                    await conn.execute(command.encode())
    except (TimeoutError, *LOST, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
        log.info("a day could not be dropped yet", extra={"partition": partition.name, "error": type(exc).__name__})
        return False
    return True
