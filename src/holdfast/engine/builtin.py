"""The built-in runners, from `outbox` to `maintenance`, and who runs against which database."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast.engine.link import LOST
from holdfast.engine.loop import Background
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.reap import MOST_AT_ONCE, Reaper
from holdfast.engine.runner import PeriodicJob, Runner
from holdfast.engine.ticker import Ticker
from holdfast.engine.timetable import Timetable
from holdfast.errors import HoldfastError
from holdfast.kind import retries_of
from holdfast.logs import Log
from holdfast.schedule import Every, parse
from holdfast.store.answer import Answer
from holdfast.store.run import Begun, begin_run, record_run
from holdfast.store.schedule import PeriodicLook, enqueue_slots, look_at_periodic_jobs, set_next

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from holdfast.engine.hook import Hooks
    from holdfast.engine.keeper import Keeper
    from holdfast.engine.runner import Counts, Tick, TickFunction
    from holdfast.engine.site import Site
    from holdfast.engine.transition import Transitions
    from holdfast.engine.worker import Worker
    from holdfast.kind import Kind
    from holdfast.settings import Settings
    from holdfast.store.reap import ReapedJob

log = Log(__name__)

MINUTE = timedelta(minutes=1)
# What a worker did is written this often.
FOLDED = MINUTE
UNLIMITED = 1_000_000
# A statement moves so many schedules on to their next slots.
SLOTS_AT_ONCE = 200
# Jobs that still ran when the time of their one-shot tick was up.
OUTLASTED = "outlasted"
# The words of `run` rows and of run-once for what a worker counts.
_SUMMARY = {
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


def summary(counts: Mapping[str, int]) -> dict[str, int]:
    """Say what a worker counted, leaving out what did not happen."""
    return {word: counts[name] for name, word in _SUMMARY.items() if counts.get(name)}


class Outbox:
    """One pass over the jobs that are due, by a worker that claims nothing more than that."""

    def __init__(self, worker: Callable[[], Worker], *, ends: float) -> None:
        """Abort what still runs at `ends`, by the monotonic clock: the budget of a tick limits only what it starts."""
        self._worker = worker
        self._ends = ends

    async def tick(self, tick: Tick) -> Counts:
        async with self._worker() as worker:
            left = tick.budget.seconds_left
            seconds = MINUTE.total_seconds() if left is None else left
            try:
                return summary(await worker.drain(tick.budget.most(UNLIMITED), seconds=seconds, ends=self._ends))
            finally:
                # A handler that goes on although it was told to stop is not waited for.
                await worker.stop(at_once=True)


class Minutes:
    """What goes on in background mode without ticks, folded into one row of `run` a minute."""

    def __init__(self, site: Site, runner: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Take `counts()`, what was done so far, in the words of a run."""
        self._site = site
        self._runner = runner
        self._counts = counts
        self._before: Counter[str] = Counter()
        self._begun: Begun | None = None
        self._due = 0.0

    async def tick(self, tick: Tick) -> Counts:
        if time.monotonic() >= self._due:
            await self.record()
            self._due = time.monotonic() + FOLDED.total_seconds()
        tick.look_again(FOLDED)
        return {}

    async def record(self) -> None:
        """Write what happened since the last time, if anything did."""
        now: Counter[str] = Counter(self._counts())
        begun = await self._site.link.run(begin_run())
        if did := now - self._before:
            row = record_run(self._begun or begun, self._runner, "completed", worker=self._site.worker, counts=did)
            await self._site.link.run(row)
        self._before, self._begun = now, begun


class Reaping:
    """Expired leases of all kinds, those that no live worker serves too."""

    def __init__(
        self,
        site: Site,
        kinds: Mapping[str, Kind[..., Any]],
        settings: Settings,
        on_reaped: Callable[[Sequence[ReapedJob]], None],
    ) -> None:
        self._site = site
        self._retries = retries_of(kinds, settings.retry)
        self._otherwise = settings.retry
        self._interval = settings.reap_interval
        self._on_reaped = on_reaped
        self._reaper: Reaper | None = None

    async def tick(self, tick: Tick) -> Counts:
        if self._reaper is None:
            self._reaper = Reaper(
                self._site.link,
                worker=self._site.worker,
                retries=self._retries,
                otherwise=self._otherwise,
                interval=0.0,
                others=True,
                on_reaped=self._on_reaped,
            )
        answers: Counter[Answer] = Counter()
        while not tick.budget.spent and not tick.signal.aborted:
            most = tick.budget.most(MOST_AT_ONCE)
            reaped = await self._reaper.reap(most)
            tick.budget.spend(len(reaped))
            answers.update(job.answer for job in reaped)
            if len(reaped) < most:
                break
        tick.look_again(self._interval)
        return {
            "recovered": answers[Answer.pending],
            "failed": answers[Answer.failed],
            "cancelled": answers[Answer.cancelled],
        }


class PeriodicJobs:
    """Enqueues the jobs of the slots that are due, each once however many workers look."""

    def __init__(self, site: Site, timetable: Timetable, names: Sequence[str]) -> None:
        self._site = site
        self._timetable = timetable
        self._names = names

    async def tick(self, tick: Tick) -> Counts:
        await self._timetable.register()
        looks, broken = _readable(await self._site.link.run(look_at_periodic_jobs(self._names)))
        if new := {look.name: look.text for look in looks if look.next_at is None}:
            await self._site.link.run(set_next(new, now=looks[0].now))
        due = [look for look in looks if look.due and look.next_at is not None]
        enqueued = 0
        while due and not tick.budget.spent and not tick.signal.aborted:
            batch = due[: tick.budget.most(SLOTS_AT_ONCE)]
            del due[: len(batch)]
            try:
                done = await self._site.link.run(enqueue_slots(batch))
            except (HoldfastError, psycopg.DataError, psycopg.IntegrityError) as exc:
                done, refused = await self._one_by_one(batch, exc)
                broken += refused
            enqueued += done
            tick.budget.spend(done)
        waits = [_wait(look) for look in looks if look.name not in broken]
        if waits:
            tick.look_again(min(waits))
        if broken:
            raise HoldfastError(f"cannot be enqueued: {', '.join(broken)[:500]} (of the others: {enqueued})")
        return {"enqueued": enqueued}

    async def _one_by_one(self, batch: Sequence[PeriodicLook], exc: Exception) -> tuple[int, list[str]]:
        """Enqueue the others of a batch that was refused; answer how many, and the names of those that cannot be."""
        if len(batch) == 1:
            log.warning("a periodic job cannot be enqueued", extra={"schedule": batch[0].name}, exc_info=exc)
            return 0, [batch[0].name]
        enqueued, broken = 0, []
        for look in batch:
            try:
                enqueued += await self._site.link.run(enqueue_slots([look]))
            except (HoldfastError, psycopg.DataError, psycopg.IntegrityError) as refused:
                broken += (await self._one_by_one([look], refused))[1]
        return enqueued, broken


def _readable(looks: Sequence[PeriodicLook]) -> tuple[list[PeriodicLook], list[str]]:
    """Return those whose next slot can be worked out, and the names of the others: a row may be made by hand."""
    readable, broken = [], []
    for look in looks:
        try:
            if look.due or look.next_at is None:
                parse(look.text).next(look.now)
        except HoldfastError as exc:
            log.warning("a schedule cannot be read", extra={"schedule": look.name}, exc_info=exc)
            broken.append(look.name)
        else:
            readable.append(look)
    return readable, broken


def _wait(look: PeriodicLook) -> timedelta:
    """Return how long it is until the slot that comes now."""
    if look.next_at is not None and look.next_at > look.now:
        return look.next_at - look.now
    return parse(look.text).next(look.now) - look.now


def assemble(  # noqa: PLR0913 - what the application and the engine bring
    names: Sequence[str],
    sites: Sequence[Site],
    *,
    home: Site | None,
    runners: Mapping[str, Runner],
    periodic: Sequence[PeriodicJob],
    kinds: Mapping[str, Kind[..., Any]],
    settings: Settings,
    state: Any,
    transitions: Transitions,
    hooks: Hooks,
    outbox: TickFunction | None,
    relay: Callable[[Site], TickFunction] | None = None,
) -> list[tuple[Ticker, list[Runner]]]:
    """Say which runners run against which database: the application's against its home, the built-in against each.

    While the home is away (None) the application's run nowhere. `outbox` serves all databases in one run. It and
    `relay` are what the runners of those names do here; None: nothing.
    """

    def reaped(jobs: Sequence[ReapedJob]) -> None:
        transitions.reaped(jobs)
        hooks.reaped(jobs)

    found = []
    for site in sites:
        maintenance = Runner("maintenance", Maintenance(site).tick, every=Every(MINUTE), singleton=True)
        own = list(runners.values()) if site is home else []
        timetable = Timetable(
            site,
            [runner for runner in (*own, maintenance) if runner.name in names],
            periodic if site is home else [],
            lease=settings.lease,
            heartbeat=settings.heartbeat,
        )
        ours = {runner.name: runner for runner in own}
        ours["reaper"] = Runner("reaper", Reaping(site, kinds, settings, reaped).tick)
        ours["maintenance"] = maintenance
        here = [job.name for job in periodic] if site is home else []
        ours["schedules"] = Runner("schedules", PeriodicJobs(site, timetable, here).tick)
        if outbox is not None and site is sites[0]:
            ours["outbox"] = Runner("outbox", outbox)
            # To abort what runs, and to write that down.
            ours["outbox"].grace = 7.0
            ours["outbox"].runs_on = True
        if relay is not None:
            ours["relay"] = Runner("relay", relay(site))
        ticker = Ticker(site, timetable, settings=settings, state=state, transitions=transitions)
        found.append((ticker, [ours[name] for name in names if name in ours]))
    return found


@asynccontextmanager
async def in_background(  # noqa: PLR0913 - what the application and the engine bring
    names: Sequence[str],
    sites: Sequence[Site],
    *,
    runners: Mapping[str, Runner],
    periodic: Sequence[PeriodicJob],
    kinds: Mapping[str, Kind[..., Any]],
    settings: Settings,
    state: Any,
    transitions: Transitions,
    hooks: Hooks,
    keeper: Keeper,
    counts: Callable[[], Mapping[str, int]] = dict,
    relayed: Mapping[str, Callable[[], Mapping[str, int]]] | None = None,
) -> AsyncIterator[Background]:
    """Run these runners in loops within the block. `counts()`: what the worker that runs the jobs has done so far.

    `relayed`: for each database by its address, what its relays have done so far.
    """
    minutes = Minutes(sites[0], "outbox", lambda: summary(counts()))
    tickers = assemble(
        names,
        sites,
        home=sites[0],
        runners=runners,
        periodic=periodic,
        kinds=kinds,
        settings=settings,
        state=state,
        transitions=transitions,
        hooks=hooks,
        outbox=minutes.tick,
        relay=None if not relayed else lambda site: Minutes(site, "relay", relayed[site.url]).tick,
    )
    async with Background(tickers, settings=settings, keeper=keeper) as background:
        yield background
    if "outbox" in names and sites[0].worker:
        with suppress(*LOST, TimeoutError):
            await minutes.record()
