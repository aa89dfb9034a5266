"""The databases that a worker serves: each one starts and stops on its own, also while the worker runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._engine.pipeline import Pipeline
from holdfast._engine.runners.builtin import Minutes, in_background, summary
from holdfast._engine.runners.database import RunnerDatabase
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast._engine.application import MakeRelaying
    from holdfast._engine.runners.loop import Background
    from holdfast._engine.serving import Serving, WorkerParts
    from holdfast._model.databases import Databases

log = Log(__name__)

# A handler whose signal was aborted has this many seconds to stop; after that its job is released without it.
ABORT_GRACE = 1.0
# Outcomes that are not written within this many seconds are left to the reaper.
FLUSH_SECONDS = 5.0
# A stop exceeds the shutdown timeout by at most this many seconds: to abort, to write outcomes, to record the end.
LAST_SECONDS = 5.0


class ServedDatabase:
    """One database of a worker: its pipeline, its relays and its runners."""

    def __init__(  # noqa: PLR0913 - what the worker has made for all of its databases
        self,
        name: str,
        url: str,
        parts: WorkerParts,
        *,
        patience: float | None,
        keeps_trying: Callable[[], bool],
        relays: MakeRelaying | None,
        has_runners: bool,
        state: Callable[[], Any],
    ) -> None:
        """`patience` and `keeps_trying`: see `Pipeline`. `state()` returns what the application's lifespan yielded."""
        self.name = name
        self.url = url
        self._parts = parts
        self.pipeline = Pipeline(name, url, parts, patience=patience, keeps_trying=keeps_trying)
        self._make_relays = relays
        self._has_runners = has_runners
        self._state = state
        self._stack = AsyncExitStack()
        self._starting: asyncio.Task[None] | None = None
        self._stopping = False
        self._home = False
        self._switching = asyncio.Lock()
        self._runners = AsyncExitStack()
        self.background: Background | None = None
        """The loops of its runners; None while they do not run."""
        database = RunnerDatabase(url, self.pipeline.link, partial(getattr, self.pipeline, "worker"), name=name)
        self._database = database
        self._jobs = Minutes(database, "outbox", lambda: summary(self.pipeline.counts))
        self._reaped = Minutes(database, "reaper", lambda: self.pipeline.reaped)
        self._events: Minutes | None = None

    def start(self, *, home: bool) -> asyncio.Task[None]:
        """Start serving, in a task of its own. `home`: whether the application's own runners run here."""
        self._home = home
        self._starting = asyncio.create_task(self._start(), name=f"holdfast-start-{self.name}")
        return self._starting

    async def _start(self) -> None:
        await self._stack.enter_async_context(self.pipeline)
        await self.pipeline.wait_until_listening()
        if self._make_relays is not None and not self._stopping:
            relaying = self._make_relays(
                self.url,
                worker=partial(getattr, self.pipeline, "worker"),
                heard=partial(getattr, self.pipeline, "listening"),
                transitions=self._parts.transitions,
                keeper=self.pipeline.keeper,
            )
            await self._stack.enter_async_context(relaying)
            self.pipeline.on_events = relaying.wake
            self._events = Minutes(self._database, "relay", partial(getattr, relaying, "counts"))
        async with self._switching:
            await self._start_runners()

    async def _start_runners(self) -> None:
        if self._has_runners and not self._stopping:
            background = in_background(
                self._parts.application,
                self._database,
                home=self._home,
                state=self._state(),
                transitions=self._parts.transitions,
                keeper=self.pipeline.keeper,
                jobs=self._jobs,
                reaped=self._reaped,
                events=self._events,
            )
            self.background = await self._runners.enter_async_context(background)

    async def set_home(self, *, home: bool) -> None:
        """Take over the application's own runners, or leave them to another database."""
        async with self._switching:
            if home != self._home:
                self._home = home
                if self.background is not None:
                    await self._runners.aclose()
                    await self._start_runners()

    def tell(self, name: Literal["database_added", "database_removed"]) -> None:
        """Tell the listeners."""
        self._parts.transitions.tell(name, database=self.name)

    @property
    def serving(self) -> Serving | None:
        """None until the database has answered for the first time."""
        return self.pipeline.serving

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: it aborts running jobs then
        """Stop within the timeout plus `LAST_SECONDS`. Each step may use the time that is left."""
        last = time.monotonic() + timeout + LAST_SECONDS
        self._stop_claiming()
        await self._start_ended(min(timeout, ABORT_GRACE))
        ending = asyncio.create_task(self._end_jobs(timeout))
        await asyncio.gather(ending, self._stop_runners(timeout), self.pipeline.claims_ended(max(timeout, ABORT_GRACE)))
        if self.serving is not None:
            await self.serving.flush(max(ABORT_GRACE, min(FLUSH_SECONDS, last - time.monotonic() - ABORT_GRACE)))
        await self.pipeline.say_stopped(ending.result(), max(ABORT_GRACE, last - time.monotonic()))

    async def close(self) -> None:
        """End its loops and connections at once, and give up its part of the slots."""
        self._stop_claiming()
        await self._start_ended(0.0)
        try:
            async with self._switching:
                await self._runners.aclose()
        finally:
            await self._stack.aclose()
            if self.serving is not None:
                self.serving.leave()

    def _stop_claiming(self) -> None:
        self._stopping = True
        self.pipeline.stop_claiming()

    async def _start_ended(self, seconds: float) -> None:
        """Wait for a start under way. One that the database does not answer within `seconds` is called off."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait({self._starting}, timeout=seconds)
            self._starting.cancel()
            await asyncio.wait({self._starting})

    async def _stop_runners(self, seconds: float) -> None:
        if self.background is not None:
            await self.background.stop(seconds)

    async def _end_jobs(self, timeout: float) -> str:  # noqa: ASYNC109 - as above
        """Wait for running jobs, then abort them. Return the reason to record."""
        if self.serving is None or await self.serving.drained(timeout):
            return "stopped"
        self.serving.held_jobs.abort_all(AbortReason.shutdown)
        if await self.serving.drained(ABORT_GRACE):
            return "stopped, with jobs aborted"
        extra = {"database": self.name}
        log.warning("handlers did not stop when asked to; their jobs are left to the reaper", extra=extra)
        return "stopped, with handlers that ignored it"


class MakeServed(Protocol):
    def __call__(self, name: str, url: str, *, several: bool, added: bool) -> ServedDatabase:
        """`several`: whether there are others. `added`: while the worker runs."""
        ...


class ServedDatabases:
    """The databases of a worker, in order. The first one has the application's own runners and schedules."""

    def __init__(self, databases: Databases, make: MakeServed) -> None:
        self._make = make
        several = len(databases) > 1
        self._now = {name: make(name, url, several=several, added=False) for name, url in databases.items()}
        self._leaving: list[ServedDatabase] = []
        self._tasks: set[asyncio.Task[None]] = set()
        """Removals, and moves of the application's runners."""
        self._changing = asyncio.Lock()
        self._stopping = False
        self._gone: Counter[str] = Counter()
        """The counts of those that are no longer served: totals never shrink."""

    @property
    def now(self) -> list[ServedDatabase]:
        """Those that are served. Safe to read from any thread."""
        return list(self._now.values())

    @property
    def several(self) -> bool:
        return len(self._now) > 1

    @property
    def serving(self) -> list[Serving]:
        """The serving parts of the databases that have answered."""
        return [served.serving for served in self.now if served.serving is not None]

    @property
    def counts(self) -> Counter[str]:
        """The number of events so far by name, summed over all databases, also those that are no longer served."""
        total = Counter(self._gone)
        for served in [*self.now, *self._leaving]:
            total.update(served.pipeline.counts)
        return total

    async def start(self) -> None:
        """Start all of them concurrently: one that does not answer delays no other. Raise the first error."""
        async with self._changing:
            starts = [served.start(home=place == 0) for place, served in enumerate(self.now)]
            await asyncio.wait(starts)
            for error in [start.exception() for start in starts]:
                if error is not None:
                    raise error
        for served in self.now if self.several else ():
            served.tell("database_added")

    async def change(self, databases: Databases, *, timeout: float) -> set[asyncio.Task[None]]:  # noqa: ASYNC109
        """Serve exactly these, and return the tasks that remove the others and move the application's runners.

        `timeout`: seconds that running jobs of a removed database may take.
        """
        async with self._changing:
            if self._stopping:
                return set()
            before, several = self._now, len(databases) > 1
            self._now = {
                name: known
                if (known := before.get(name)) is not None and known.url == url
                else self._make(name, url, several=several, added=True)
                for name, url in databases.items()
            }
            gone = [served for name, served in before.items() if self._now.get(name) is not served]
            self._leaving += gone
            tasks = {self._begin(self._remove(served, timeout)) for served in gone}
            starts = set()
            for place, served in enumerate(self.now):
                if before.get(served.name) is served:
                    tasks.add(self._begin(served.set_home(home=place == 0)))
                    if several:
                        served.pipeline.lend()
                else:
                    log.info("a database is added", extra={"database": served.name})
                    served.tell("database_added")
                    starts.add(served.start(home=place == 0))
            if starts:
                await asyncio.wait(starts)
            for start in starts:
                if not start.cancelled() and (error := start.exception()) is not None:
                    log.error("a database could not be added", exc_info=error)
            return tasks

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a change of the databases failed", exc_info=error)

    async def _remove(self, served: ServedDatabase, timeout: float) -> None:  # noqa: ASYNC109 - not a limit
        extra = {"database": served.name}
        log.info("a database is removed", extra=extra)
        try:
            await served.stop(timeout)
        finally:
            await served.close()
            self._gone.update(served.pipeline.counts)
            self._leaving.remove(served)
        log.info("a database was removed", extra=extra)
        if served.name not in self._now:
            served.tell("database_removed")

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: it aborts running jobs then
        """Stop all of them concurrently. Removals under way end by themselves, or with a timeout of 0 at once."""
        self._stopping = True
        leaving = [] if timeout > 0 else self._leaving
        await asyncio.gather(*(served.stop(timeout) for served in [*self.now, *leaving]))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout + LAST_SECONDS)

    async def close(self) -> None:
        """End what is left of them at once."""
        self._stopping = True
        closed = await asyncio.gather(*(served.close() for served in self.now), return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        for served in self.now if self.several else ():
            served.tell("database_removed")
        for error in closed:
            if isinstance(error, BaseException):
                raise error
