"""The databases that a worker serves: each one starts and stops on its own, also while the worker runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast._engine.pipeline import LAST_SECONDS, Pipeline
from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast._engine.serving import Serving, WorkerParts
    from holdfast._model.databases import Databases

log = Log(__name__)

# With several databases, the start waits this many seconds for each; a later one is served once it answers.
START_SECONDS = 1.5


class ServedDatabases:
    """The databases of a worker, in order. The first one has the application's own runners and schedules."""

    def __init__(self, databases: Databases, worker: WorkerParts, *, patience: float | None) -> None:
        """`patience`: see `Worker`."""
        self._worker = worker
        self._patience = patience
        worker.sharing.several = len(databases) > 1
        self._now = {name: self._make(name, url, added=False) for name, url in databases.items()}
        self._leaving: list[Pipeline] = []
        self._tasks: set[asyncio.Task[None]] = set()
        """Removals, and moves of the application's runners."""
        self._changing = asyncio.Lock()
        self._stopping = False
        self._gone: Counter[str] = Counter()
        """The counts of those that are no longer served: totals never shrink."""

    def _make(self, name: str, url: str, *, added: bool) -> Pipeline:
        limited = self._patience is None and (self._worker.sharing.several or added)
        return Pipeline(name, url, self._worker, patience=START_SECONDS if limited else self._patience, added=added)

    @property
    def now(self) -> list[Pipeline]:
        """Those that are served. Safe to read from any thread."""
        return list(self._now.values())

    @property
    def serving(self) -> list[Serving]:
        """The serving parts of the databases that have answered."""
        return [served.serving for served in self.now if served.serving is not None]

    @property
    def counts(self) -> Counter[str]:
        """The number of events so far by name, summed over all databases, also those that are no longer served."""
        total = Counter(self._gone)
        for served in [*self.now, *self._leaving]:
            total.update(served.session.counts)
        return total

    async def start(self) -> None:
        """Start all of them concurrently: one that does not answer delays no other. Raise the first error."""
        async with self._changing:
            starts = [served.start(home=place == 0) for place, served in enumerate(self.now)]
            await asyncio.wait(starts)
            for error in [start.exception() for start in starts]:
                if error is not None:
                    raise error
        for served in self.now if self._worker.sharing.several else ():
            served.tell("database_added")

    async def change(self, databases: Databases, *, timeout: float) -> set[asyncio.Task[None]]:  # noqa: ASYNC109
        """Serve exactly these, and return the tasks that remove the others and move the application's runners.

        `timeout`: seconds that running jobs of a removed database may take.
        """
        async with self._changing:
            if self._stopping:
                return set()
            before = self._now
            self._worker.sharing.several = several = len(databases) > 1
            self._now = {
                name: known
                if (known := before.get(name)) is not None and known.url == url
                else self._make(name, url, added=True)
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
                        served.lend()
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

    async def _remove(self, served: Pipeline, timeout: float) -> None:  # noqa: ASYNC109 - not a limit
        extra = {"database": served.name}
        log.info("a database is removed", extra=extra)
        try:
            await served.stop(timeout)
        finally:
            await served.close()
            self._gone.update(served.session.counts)
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
        for served in self.now if self._worker.sharing.several else ():
            served.tell("database_removed")
        for error in closed:
            if isinstance(error, BaseException):
                raise error
