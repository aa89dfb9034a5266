"""A worker: its slots, its handlers, and a pipeline for each database that it serves. The composition root."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from holdfast._engine import pipeline
from holdfast._engine.jobs.dispatch import Dispatcher
from holdfast._engine.jobs.executor import Executors
from holdfast._engine.jobs.loop_watch import LoopWatch
from holdfast._engine.jobs.processes import Processes
from holdfast._engine.jobs.run_handlers import Handlers
from holdfast._engine.jobs.slots import slots_of
from holdfast._engine.keeper import Keeper, in_thread
from holdfast._engine.report.hook import Hooks
from holdfast._engine.report.job_log import JobLog
from holdfast._engine.report.transition import Observer, Transitions
from holdfast._engine.runner import Budget, left_out
from holdfast._engine.served import ServedDatabases
from holdfast._engine.serving import WorkerParts
from holdfast._engine.session import Sharing
from holdfast._engine.worker_report import DEPLOY_GRACE
from holdfast._logs.log import Log
from holdfast._model.call import refuse_in_child, type_name
from holdfast._model.databases import Databases, place_of
from holdfast._model.databases_file import SETTLE_SECONDS, DatabasesFile
from holdfast._model.errors import HoldfastError
from holdfast._model.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast._engine.application import Application
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.keeper import Kept, Turn
    from holdfast._engine.pipeline import Pipeline
    from holdfast._engine.report.transition import EndedBatch
    from holdfast._engine.serving import Serving
    from holdfast._model.duration import Duration
    from holdfast._model.kind import Kind


log = Log(__name__)

# Seconds between two looks at the file of databases.
FOLLOW_SECONDS = 2.0
# The log names at most this many databases.
MOST_PLACES = 5


class Worker:
    """A worker that runs inside its `async with` block. Leaving the block stops it gracefully.

    A graceful stop gives back jobs that have not started, waits for running jobs up to the shutdown timeout, then
    aborts and releases the rest.
    """

    def __init__(  # noqa: PLR0913 - one keyword per option
        self,
        application: Application,
        *,
        id: str | None = None,  # noqa: A002 - the name used everywhere
        queues: Mapping[str, int] | None = None,
        concurrency: int | None = None,
        next_job_delay: Mapping[str, Duration] | None = None,
        max_jobs: int | None = None,
        background: bool = True,
        patience: float | None = None,
    ) -> None:
        """`max_jobs`: set `spent` when so many jobs have ended. Defaults to never.

        Without `background` it has no runners and no relays, and only `drain` claims jobs.

        `patience`: seconds to wait for a database at the start; one that answers later is served from then on. Defaults
        to 1.5 with several databases; with a single one, to no limit as long as the connection does not fail.
        """
        self.id: str = id or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"
        kinds, settings = application.kinds, application.settings
        own = {name: kind.work.lease for name, kind in kinds.items()}
        settings = settings.fitted({f"kind {name}": lease.duration for name, lease in own.items() if lease})
        self._application = application = replace(application, settings=settings)
        self._has_background = background
        self._runners = application.selected if background else []
        self._given_queues = tuple(queues or ())
        self._stack = AsyncExitStack()
        self._entered = False
        self.stopping: bool = False
        """Whether a stop was asked for."""
        self._stopped = False
        self._stop_lock = asyncio.Lock()
        self.broken: asyncio.Event = asyncio.Event()
        """Set when a loop fails repeatedly and this process should be replaced."""
        self.spent: asyncio.Event = asyncio.Event()
        """Set when `max_jobs` jobs have ended."""
        self.keeper: Keeper = Keeper(self.id, self.broken)
        self._hooks = Hooks(
            self.keeper, on_failure=application.failure_hooks, on_dead_letter=application.dead_letter_hooks
        )
        self._job_log = JobLog(self.id)
        quota = [] if max_jobs is None else [Quota(max_jobs, self.spent)]
        self._transitions = Transitions(self.id, [self._job_log, self._hooks, *quota, *application.listeners])
        slots = slots_of(kinds, settings, queues=queues, concurrency=concurrency, next_job_delay=next_job_delay or {})
        in_process = [kind for kind in kinds.values() if kind.work.in_process]
        modules = sorted({kind.handler.__module__ for kind in in_process})
        self._processes = Processes(slots, modules, self.keeper, settings)
        self._starts_processes = "outbox" in self._runners and any(
            kind.envelope.queue in slots.queues for kind in in_process
        )
        self._executors = Executors(max(1, slots.concurrency), self._processes)
        self._handlers = Handlers(
            codec=application.codec,
            executors=self._executors,
            middlewares=application.middlewares,
            worker=self.id,
            retry=settings.retry,
            grace=DEPLOY_GRACE,
            spans=self._transitions.spans,
        )
        self._dispatcher = Dispatcher(slots, self._handlers)
        self._processes.on_change = self._dispatcher.changed
        parts = WorkerParts(
            name=self.id,
            application=application,
            dispatcher=self._dispatcher,
            transitions=self._transitions,
            loop_watch=LoopWatch(),
            claiming="outbox" in self._runners,
            relays=application.relays if "relay" in self._runners else None,
            has_runners=background,
            reaping_others="reaper" in self._runners,
            sharing=Sharing(),
            broken=self.broken,
        )
        self._served = ServedDatabases(application.databases, parts, patience=patience)

    async def __aenter__(self) -> Self:
        refuse_in_child("app.worker")
        if self._entered:
            raise HoldfastError("a worker runs once: for another run, call app.worker() again")
        self._entered = True
        async with AsyncExitStack() as stack:
            self._handlers.state = await stack.enter_async_context(self._application.lifespan())
            await stack.enter_async_context(self._executors)
            if self._starts_processes:
                self._processes.start()
            await stack.enter_async_context(self._hooks)
            stack.push_async_callback(self._served.close)
            try:
                await self._served.start()
                if (path := self._application.databases_file) is not None and self._has_background:
                    file = DatabasesFile(path, self._application.databases)
                    following = self.keeper.start("databases file", partial(self._follow, file))
                    stack.callback(following.cancel)
            except BaseException:
                # Pipelines that have started may hold jobs.
                await self._stop(0.0)
                raise
            self._stack = stack.pop_all()
        queues, kinds = ",".join(self._dispatcher.slots.queues), self._application.kinds
        runners = self._application.selected if self._has_background else ()
        self._transitions.tell("worker_started", kinds=tuple(kinds), runners=tuple(runners))
        if self._has_background:
            for problem in left_out(self._application.settings, self._application.runner_names):
                log.warning("%s", problem, extra={"worker": self.id})
        places = [place_of(url) for url in self._application.databases.values()]
        shown = ", ".join(places[:MOST_PLACES]) + (", …" if len(places) > MOST_PLACES else "")
        log.info("worker started", extra={"worker": self.id, "at": shown, "queues": queues, "kinds": len(kinds)})
        for lacking in uncovered(kinds, self._given_queues) if "outbox" in self._runners else ():
            log.warning(lacking, extra={"worker": self.id})
        return self

    if not TYPE_CHECKING:  # a type checker rejects a plain `with` by itself

        def __enter__(self) -> NoReturn:
            raise TypeError("a worker is asynchronous: write `async with app.worker(): …` instead of `with`")

        def __exit__(self, *_: object) -> None: ...

        def __await__(self) -> NoReturn:
            raise TypeError("a worker is not awaited: write `async with app.worker(): …`, and it runs inside the block")

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            await self._stack.aclose()
            self._job_log.sum_up()
            self._transitions.tell("worker_stopped")
            log.info("worker stopped", extra={"worker": self.id, **self.counts})

    async def serve(self, databases: Databases) -> None:
        """Serve exactly these databases from now on: `await worker.serve(Databases.read(path))`.

        New ones are started; one that does not answer delays no other, and is served once it answers. Databases that
        are not among them are stopped: nothing more is claimed there, jobs that have not started are given back, and
        running jobs may finish within the shutdown timeout. It returns when they have stopped. The rest is untouched,
        except that the application's own runners and schedules follow the first database. A worker that stops ignores
        the call.
        """
        if not isinstance(databases, Databases):
            raise TypeError(f"worker.serve: expected Databases, got {type_name(databases)}")
        if not self._entered:
            raise HoldfastError("worker.serve: the worker has not started: call it inside `async with app.worker()`")
        if tasks := await self._change(databases):
            await asyncio.wait(tasks)

    async def _change(self, databases: Databases) -> set[asyncio.Task[None]]:
        return await self._served.change(databases, timeout=self._application.settings.shutdown_timeout.total_seconds())

    async def _follow(self, file: DatabasesFile, turn: Turn) -> None:
        """Serve what the file names, whenever it changes. One that cannot be used changes nothing."""
        while True:
            rest = SETTLE_SECONDS if file.settling else FOLLOW_SECONDS
            turn(rest)
            await asyncio.sleep(rest)
            try:
                databases = await in_thread(file.look, name="databases file")
            except SettingsError as refused:
                extra = {"worker": self.id, "why": "; ".join(refused.problems)}
                log.error("the file of databases cannot be used: the worker serves the same as before", extra=extra)  # noqa: TRY400
                continue
            if databases is not None:
                await self._change(databases)

    @property
    def pipelines(self) -> list[Pipeline]:
        """One for each database that is served, in order."""
        return self._served.now

    @property
    def _serving(self) -> list[Serving]:
        """The serving parts of the databases that have answered."""
        return self._served.serving

    @property
    def counts(self) -> dict[str, int]:
        """The number of events so far by name, summed over all databases, also those that are no longer served."""
        return self._served.counts

    @property
    def vitals(self) -> list[Vitals]:
        """The health of each database's pipeline. Safe to read from any thread."""
        return [pipeline.vitals for pipeline in self.pipelines]

    @property
    def loops(self) -> list[Kept]:
        """All loops and threads of this worker."""
        return [*self.keeper.loops, *(kept for pipeline in self.pipelines for kept in pipeline.session.keeper.loops)]

    async def drain(self, items: int, *, seconds: float, ends: float) -> dict[str, int]:
        """Claim and run at most `items` due jobs, start none after `seconds`, and return the counts.

        Jobs that run then may continue until `ends` (monotonic clock). The attempts of jobs that run
        even longer fail. A database that fails does not affect the others; its error is raised at the end.
        """
        before, until = self.counts, time.monotonic() + seconds
        failures: list[BaseException] = []
        claimed, drained = -1, True
        # A job that ends may make others due: with the same order key, in its chain, or blocked by it.
        while drained and not failures and claimed < (claimed := self._claimed_since(before)):
            failures = await self._claim_due(items - claimed, until)
            drained = await self._dispatcher.drained(max(0.0, until - time.monotonic()))
            await self._flush()
            if drained and not failures:
                failures = await self._run_suspects(items - self._claimed_since(before), until)
        outlasted = 0 if drained else await self._run_on(ends)
        if failures:
            raise failures[0] if len(failures) == 1 else BaseExceptionGroup("several databases failed", failures)
        return {name: count - before.get(name, 0) for name, count in self.counts.items()} | {"outlasted": outlasted}

    async def _run_on(self, ends: float) -> int:
        """Start nothing more and wait for running jobs. Abort those that still run at `ends`; return how many."""
        for serving in self._serving:
            serving.intake.give_back_waiting()
        outlasted = 0
        if not await self._dispatcher.drained(max(0.0, ends - time.monotonic())):
            budget = self._application.settings.tick_overall_max / timedelta(milliseconds=1)
            label = self._application.settings.label("tick_overall_max")
            why = f"the job still ran at the end of its one-shot tick, after {budget:g} ms: {label}"
            outlasted = sum(serving.held_jobs.abort_overdue(why) for serving in self._serving)
            log.warning("jobs still ran when the time of the tick was up", extra={"jobs": outlasted, "ms": budget})
            await self._dispatcher.drained(pipeline.ABORT_GRACE)
            for serving in self._serving:
                serving.intake.give_up_running()
        await self._flush()
        return outlasted

    async def _flush(self) -> None:
        await asyncio.gather(*(serving.flush(pipeline.FLUSH_SECONDS) for serving in self._serving))

    async def _claim_due(self, items: int, until: float) -> list[BaseException]:
        """Claim from all databases concurrently: each gets a share of the items, then what the others did not use."""
        failures: list[BaseException] = []
        before, databases = self.counts, self._serving
        while databases and (left := items - self._claimed_since(before)) > 0:
            shares = [share.items_left or 0 for share in Budget(items=left).shares(len(databases))]
            claims = (serving.claim_due(share, until) for serving, share in zip(databases, shares, strict=True))
            ended = await asyncio.gather(*claims, return_exceptions=True)
            failures += [outcome for outcome in ended if isinstance(outcome, BaseException)]
            databases = [serving for serving, more in zip(databases, ended, strict=True) if more is True]
        return failures

    async def _run_suspects(self, items: int, until: float) -> list[BaseException]:
        """Run suspects (jobs whose worker was lost while it ran them). Nothing else runs at this time."""
        failures: list[BaseException] = []
        for serving in self._serving:
            try:
                items -= await serving.run_suspects(items, until)
            except Exception as exc:  # noqa: BLE001 - the other databases still get their turn
                failures.append(exc)
        return failures

    def _claimed_since(self, before: Mapping[str, int]) -> int:
        return self.counts.get("claimed", 0) - before.get("claimed", 0)

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop gracefully, or `at_once`: abort running jobs and release those that can be released.

        A second call for a graceful stop waits for the first one.
        """
        if not self.stopping:
            self.stopping = True
            self._transitions.tell("worker_stopping")
        if at_once:
            await self._stop(0.0)
            return
        async with self._stop_lock:
            if not self._stopped:
                await self._stop(self._application.settings.shutdown_timeout.total_seconds())

    async def _stop(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: it aborts running jobs then
        await self._served.stop(timeout)
        self._stopped = True


class Quota(Observer):
    """Counts the jobs that end, and reports when there were enough of them."""

    def __init__(self, jobs: int, spent: asyncio.Event) -> None:
        self._left = jobs
        self._spent = spent

    def ended(self, worker: str, batch: EndedBatch) -> None:  # noqa: ARG002 - of the observer
        self._left -= len(batch.names)
        if self._left <= 0:
            self._spent.set()


def uncovered(kinds: Mapping[str, Kind[..., Any]], queues: Iterable[str]) -> Iterator[str]:
    """Return a warning for each thing that keeps a worker of these queues from running jobs."""
    if not kinds:
        yield "no kind is registered, so no job runs: register handlers with @app.job, and import their modules"
        return
    named = {kind.envelope.queue for kind in kinds.values()}
    if lacking := [queue for queue in queues if queue not in named]:
        yield (
            f"no kind names the queue {', '.join(lacking)}: only jobs that are enqueued with `queue=` run there; "
            f"the kinds name {', '.join(sorted(named))}"
        )
