"""The built-in runners, from `outbox` to `maintenance`, and the choice of runners for each database."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs.reap import MOST_AT_ONCE, REAPED, Reaper, ReapSchedule
from holdfast._engine.link import LOST
from holdfast._engine.runner import Runner
from holdfast._engine.runners.bulk_actions import BulkActions
from holdfast._engine.runners.loop import Background
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._engine.runners.schedules import Timetable, tell_moved
from holdfast._engine.runners.ticker import Ticker
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._model.kind import retries_of
from holdfast._model.schedule import Every
from holdfast._store.schedule import (
    PeriodicScan,
    enqueue_slots,
    look_at_periodic_jobs,
    record_run,
    set_next,
    start_run,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from holdfast._engine.application import Application
    from holdfast._engine.keeper import Keeper
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runner import Counts, Tick, TickFunction
    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings

log = Log(__name__)

MINUTE = timedelta(minutes=1)
# The counts of a worker are written this often.
FOLDED = MINUTE
# Seconds over which the workers of a fleet look at the slot of maintenance.
SPREAD = 10.0
UNLIMITED = 1_000_000
# One statement advances this many schedules to their next slots.
SLOTS_AT_ONCE = 200
# Jobs that still ran when the time of their one-shot tick was up.
OUTLASTED = "outlasted"
# The names of a worker's counts in `run` rows and in run-once.
RUN_NAMES = {
    "claimed": "processed",
    "job_completed": "completed",
    "job_retried": "retried",
    "job_rescheduled": "rescheduled",
    "job_released": "released",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
    "job_reaped": "recovered",
    "job_lost": "lost",
    "outlasted": OUTLASTED,
}


def summary(counts: Mapping[str, int], names: Mapping[str, str] = RUN_NAMES) -> dict[str, int]:
    """Return a worker's counts under their names in a run, without zeros."""
    return {word: counts[name] for name, word in names.items() if counts.get(name)}


class Minutes:
    """Records work of background mode that has no ticks, as one row of `run` per minute."""

    def __init__(
        self,
        database: RunnerDatabase,
        runner: str,
        counts: Mapping[str, int],
        *,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Record the increase of `counts`, the totals so far.

        `names`: under which they stand in a run; others are left out. Defaults to all, under their own names.
        """
        self._database = database
        self._runner = runner
        self._counts = counts
        self._names = names
        self._before: Counter[str] = Counter()
        self._since = time.monotonic()
        self._due = 0.0

    async def tick(self, tick: Tick) -> Counts:
        if time.monotonic() >= self._due:
            await self.record()
            self._due = time.monotonic() + FOLDED.total_seconds()
        tick.look_again(FOLDED)
        return {}

    async def record(self) -> None:
        """Write the counts since the last call, if there are any."""
        now = Counter(self._counts if self._names is None else summary(self._counts, self._names))
        ends = time.monotonic()
        if did := now - self._before:
            started = await self._database.link.run(start_run())
            run = started.earlier(ends - self._since)
            row = record_run(run, self._runner, "completed", worker=self._database.worker, counts=did)
            await self._database.link.run(row)
        self._before, self._since = now, ends


class Reaping:
    """Reaps expired leases of all kinds in one-shot mode. In background mode, the worker's own reaper does."""

    def __init__(
        self,
        database: RunnerDatabase,
        kinds: Mapping[str, Kind[..., Any]],
        settings: Settings,
        transitions: Transitions,
    ) -> None:
        self._database = database
        self._retries = retries_of(kinds, settings.retry)
        self._default_retry = settings.retry
        self._transitions = transitions
        self._reaper: Reaper | None = None

    async def tick(self, tick: Tick) -> Counts:
        if self._reaper is None:
            self._reaper = Reaper(
                self._database.link,
                self._database.row,
                ReapSchedule(0.0, 0.0),
                self._transitions,
                retries=self._retries,
                default=self._default_retry,
                others=True,
            )
        while not tick.budget.spent and not tick.signal.aborted:
            limit = tick.budget.limit(MOST_AT_ONCE)
            reaped = await self._reaper.reap(limit)
            tick.budget.spend(len(reaped))
            for answer, name in REAPED.items():
                tick.count(name, sum(job.answer is answer for job in reaped))
            if len(reaped) < limit:
                break
        return tick.counts


class PeriodicJobs:
    """Enqueues the jobs of due slots, each once, however many workers look."""

    def __init__(
        self, database: RunnerDatabase, timetable: Timetable, names: Sequence[str], transitions: Transitions
    ) -> None:
        self._database = database
        self._timetable = timetable
        self._names = names
        self._transitions = transitions

    async def tick(self, tick: Tick) -> Counts:
        await self._timetable.register()
        looks, broken = _readable(await self._database.link.run(look_at_periodic_jobs(self._names)))
        if unset := {look.name: look for look in looks if look.unset}:
            for name in await self._database.link.run(set_next(unset)):
                tell_moved(name, unset[name])
        due = [look for look in looks if look.due and look.name not in unset]
        tick.count("enqueued", 0)
        while due and not tick.budget.spent and not tick.signal.aborted:
            batch = due[: tick.budget.limit(SLOTS_AT_ONCE)]
            del due[: len(batch)]
            try:
                done = await self._enqueue(batch)
            except Exception as exc:  # noqa: BLE001 - the probe raises if the database is the cause
                await self._database.link.probe()
                done, refused = await self._one_by_one(batch, exc)
                broken += refused
            tick.count("enqueued", done)
            tick.budget.spend(done)
        waits = [look.following - look.now for look in looks if look.name not in broken]
        if waits:
            tick.look_again(min(waits))
        if broken:
            raise HoldfastError(f"cannot be enqueued: {', '.join(broken)[:500]}")
        return tick.counts

    async def _enqueue(self, batch: Sequence[PeriodicScan]) -> int:
        filled = await self._database.link.run(enqueue_slots(batch))
        self._transitions.enqueued(filled.made, "schedule")
        return filled.slots

    async def _one_by_one(self, batch: Sequence[PeriodicScan], exc: Exception) -> tuple[int, list[str]]:
        """Enqueue the jobs of a refused batch singly. Return how many, and the names of those that were refused."""
        if len(batch) == 1:
            log.warning("a periodic job cannot be enqueued", extra={"schedule": batch[0].name}, exc_info=exc)
            return 0, [batch[0].name]
        enqueued, broken = 0, []
        for look in batch:
            try:
                enqueued += await self._enqueue([look])
            except Exception as refused:  # noqa: BLE001 - the probe raises if the database is the cause
                await self._database.link.probe()
                broken += (await self._one_by_one([look], refused))[1]
        return enqueued, broken


def _readable(looks: Sequence[PeriodicScan]) -> tuple[list[PeriodicScan], list[str]]:
    """Return the schedules that can be parsed, and the names of the others: a row may be written by hand."""
    readable, broken = [], []
    for look in looks:
        try:
            look.unset  # noqa: B018 - it reads the schedule
        except HoldfastError as exc:
            log.warning("a schedule cannot be read", extra={"schedule": look.name}, exc_info=exc)
            broken.append(look.name)
        else:
            readable.append(look)
    return readable, broken


def assemble(  # noqa: PLR0913 - the application, and what the engine made for it
    application: Application,
    databases: Sequence[RunnerDatabase],
    *,
    state: Any,
    transitions: Transitions,
    outbox: TickFunction | None,
    relay: Callable[[RunnerDatabase], TickFunction] | None = None,
) -> list[tuple[Ticker, list[Runner]]]:
    """Return the runners of each database: the application's run against its first, the built-in ones against each.

    `databases`: those that answer. Without the first one, the application's runners do not run. `outbox` serves all
    databases in one run. `outbox` and `relay` are the functions of these runners here; None: they do nothing.
    """
    first = application.databases.first
    return [
        _assemble_for(
            application,
            database,
            home=database.url == first,
            state=state,
            transitions=transitions,
            outbox=outbox if database is databases[0] else None,
            relay=None if relay is None else relay(database),
        )
        for database in databases
    ]


def _assemble_for(  # noqa: PLR0913 - the application, and what the engine made for it
    application: Application,
    database: RunnerDatabase,
    *,
    home: bool,
    state: Any,
    transitions: Transitions,
    outbox: TickFunction | None,
    relay: TickFunction | None,
    reaper: TickFunction | None = None,
) -> tuple[Ticker, list[Runner]]:
    """Return the runners of one database. `home`: whether the application's own are among them.

    `reaper`: the function of that runner in background mode. By default it reaps.
    """
    settings, names = application.settings, application.selected
    # A new database needs no maintenance at first.
    maintenance = Runner(
        "maintenance",
        Maintenance(database, archives=bool(settings.archive_bucket)).tick,
        every=Every(MINUTE),
        singleton=True,
        at_start=False,
        spread=SPREAD,
    )
    archive = [] if application.archive is None else list(application.archive(database.url))
    own = list(application.runners.values()) if home else []
    periodic = list(application.schedules.values()) if home else []
    timetable = Timetable(
        database,
        [runner for runner in (*own, maintenance, *archive) if runner.name in names],
        periodic,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
    )
    ours = {runner.name: runner for runner in own}
    quiet = reaper is not None
    reap = Reaping(database, application.kinds, settings, transitions).tick if reaper is None else reaper
    ours["reaper"] = Runner("reaper", reap, quiet=quiet)
    ours["bulk_actions"] = Runner("bulk_actions", BulkActions(database, transitions).tick, quiet=True)
    ours["maintenance"] = maintenance
    ours |= {runner.name: runner for runner in archive}
    scheduled = [job.name for job in periodic]
    ours["schedules"] = Runner("schedules", PeriodicJobs(database, timetable, scheduled, transitions).tick, quiet=quiet)
    if outbox is not None:
        # The grace is for aborting running jobs and writing their outcomes.
        ours["outbox"] = Runner("outbox", outbox, grace=7.0, runs_on=True, quiet=quiet)
    if relay is not None:
        ours["relay"] = Runner("relay", relay, quiet=quiet)
    ticker = Ticker(database, timetable, settings=settings, state=state, transitions=transitions)
    return ticker, [ours[name] for name in names if name in ours]


@asynccontextmanager
async def in_background(  # noqa: PLR0913 - the application, and what the engine made for it
    application: Application,
    database: RunnerDatabase,
    *,
    home: bool,
    state: Any,
    transitions: Transitions,
    keeper: Keeper,
    jobs: Minutes,
    reaped: Minutes,
    events: Minutes | None = None,
) -> AsyncIterator[Background]:
    """Run the selected runners of a database in loops inside the block.

    `home`: whether the application's own are among them. `jobs`, `reaped` and `events` record the work of the worker,
    of its reaper and of its relays there.
    """
    tickers = _assemble_for(
        application,
        database,
        home=home,
        state=state,
        transitions=transitions,
        outbox=jobs.tick,
        relay=None if events is None else events.tick,
        reaper=reaped.tick,
    )
    async with Background([tickers], settings=application.settings, keeper=keeper) as background:
        yield background
    if "outbox" in application.selected and database.worker:
        with suppress(*LOST, TimeoutError):
            await jobs.record()
