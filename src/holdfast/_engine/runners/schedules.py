"""The stored schedules of one database: finds the slots that are due, and holds the slot that runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psycopg

from holdfast import _drivers as drivers
from holdfast._engine.address import connect
from holdfast._engine.link import LOST, Outage, severed_after
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._store.schedule import (
    ScheduleScan,
    Slot,
    claim_slot,
    declare_schedules,
    keep_singleton,
    look_at_schedule,
    register_schedules,
    renew_slot,
    set_next,
    take_singleton,
    taken_schedules,
)
from holdfast._store.statement import pin_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta

    from holdfast._engine.runner import PeriodicJob, Runner
    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._store.schedule import SlotScan


log = Log(__name__)

# Seconds until the next look at a slot that another worker took just now.
TAKEN_SECONDS = 0.2


class Timetable:
    """The schedules of one database. They are registered at first use, so the database may be down until then."""

    def __init__(
        self,
        database: RunnerDatabase,
        runners: Sequence[Runner],
        periodic: Sequence[PeriodicJob],
        *,
        lease: timedelta,
        heartbeat: timedelta,
    ) -> None:
        self._database = database
        self._declared = [(runner.name, runner.every, None) for runner in runners if runner.every is not None]
        self._at_start = {runner.name for runner in runners if runner.at_start}
        repeated: list[Runner | PeriodicJob] = [*runners, *periodic]
        self._skipping = {each.name for each in repeated if each.missed == "skip"}
        self._periodic = [(job.name, job.every, job.job) for job in periodic]
        self._lease = lease
        self._heartbeat = heartbeat.total_seconds()
        self._registered = 0
        """The worker's id for which that was done: it gets another one after a restore."""

    async def register(self) -> None:
        """Store the schedules that the code declares, once."""
        if self._registered == self._database.worker:
            return
        declared = [*self._declared, *self._periodic]
        stored = register_schedules(declared, at_start=self._at_start, skipping=self._skipping)
        changed = await self._database.link.run(stored) if declared else []
        if changed:
            log.info("schedules stored: %s", ", ".join(changed))
        names = [name for name, *_ in declared]
        if taken := await self._database.link.run(taken_schedules(names)):
            log.error("schedules were added under names that the code declares, and the code's do not run: %s", taken)
        await self._database.link.run(declare_schedules(names, worker=self._database.worker))
        self._registered = self._database.worker

    async def take(self, name: str) -> Slot | float | None:
        """Take the runner's slot if it is due. Otherwise return the seconds until the next look; None: unknown."""
        await self.register()
        look = await self._database.link.run(look_at_schedule(name))
        if look is None:
            self._registered = 0
            return None
        if look.unset:
            if await self._database.link.run(set_next({name: look})):
                tell_moved(name, look)
            return (look.following - look.now).total_seconds()
        if not look.claimable:
            return _wait(look)
        slot = await self._database.link.run(claim_slot(name, look, worker=self._database.worker, lease=self._lease))
        # Another worker was quicker, and its transaction may not be visible yet.
        return TAKEN_SECONDS if slot is None else slot

    async def hold(self, name: str, slot: Slot, abort: Callable[[AbortReason], None]) -> None:
        """Renew the slot's lease until cancelled. Call `abort` if it is lost or cannot be renewed in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._lease.total_seconds()
        outage = Outage(log, "renew_slot failed, trying again", runner=name)
        rest = self._heartbeat
        while True:
            await asyncio.sleep(rest)
            renewed_at = loop.time()
            try:
                held = await self._database.link.run(
                    renew_slot(name, slot, worker=self._database.worker, lease=self._lease)
                )
            except (*LOST, TimeoutError) as exc:
                rest = outage.failed(exc)
                if loop.time() + self._heartbeat > until:
                    return abort(AbortReason.error)
                continue
            except Exception:
                log.exception("renew_slot failed", extra={"runner": name})
                return abort(AbortReason.error)
            if not held:
                return abort(AbortReason.taken_by_another_worker)
            outage.over()
            rest, until = self._heartbeat, renewed_at + self._lease.total_seconds()


def tell_moved(name: str, look: SlotScan) -> None:
    """Log that a slot will not run."""
    if look.next_at is not None:
        why = "a missed slot was skipped" if look.skipped else "the clock was set back: the next slot is earlier"
        log.warning(why, extra={"schedule": name, "slot": look.next_at.isoformat()})


def _wait(look: ScheduleScan) -> float | None:
    """Return in how many seconds the answer may change. None: only the end of a run or an operator can change it."""
    times = [look.next_at] if look.next_at is not None and not look.paused else []
    times += [look.locked_until] if look.locked_until is not None else []
    later = [(at - look.now).total_seconds() for at in times if at > look.now]
    return min(later, default=None)


@asynccontextmanager
async def singleton(url: str, name: str, on_lost: Callable[[], None], *, seconds: float) -> AsyncIterator[bool]:
    """Hold the runner's lock within the block. Yield False if another process has it.

    `on_lost` is called when the connection fails. Idle in a READ COMMITTED transaction that has written nothing, the
    session holds neither a snapshot nor a transaction id: it does not hold back vacuum, however long the runner runs.
    """
    async with asyncio.timeout(seconds):
        conn = await connect(url, autocommit=False, prepare_threshold=None)
    try:
        await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        with severed_after(conn, seconds):
            await drivers.run(conn, pin_names(local=True))
            held = await drivers.run(conn, take_singleton(name))
            await conn.execute(keep_singleton().encode())
        if not held:
            yield False
            return
        watch = asyncio.create_task(_watch(conn, name, on_lost))
        try:
            yield True
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            with suppress(*LOST, TimeoutError), severed_after(conn, seconds):
                await conn.rollback()
    finally:
        await conn.close()


async def _watch(conn: psycopg.AsyncConnection[object], name: str, on_lost: Callable[[], None]) -> None:
    """Wait for the end of a connection that carries no other traffic."""
    try:
        async for _ in conn.notifies():
            pass
    except Exception as exc:  # noqa: BLE001 - after any error the lock may be gone
        log.warning("the lock of a runner is gone", extra={"runner": name, "error": type(exc).__name__})
    on_lost()
