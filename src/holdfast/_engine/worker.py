"""A worker: its slots, its handlers, and a pipeline for each database that it serves. The composition root."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from holdfast._engine.jobs.dispatch import Dispatcher
from holdfast._engine.jobs.executor import Executors
from holdfast._engine.jobs.handlers import Handlers
from holdfast._engine.jobs.slots import slots_of
from holdfast._engine.keeper import Keeper
from holdfast._engine.pipeline import Pipeline
from holdfast._engine.report.hook import Hooks
from holdfast._engine.report.job_log import JobLog
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import Budget, left_out
from holdfast._engine.runners.builtin import in_background
from holdfast._engine.runners.database import RunnerDatabase
from holdfast._engine.serving import WorkerParts
from holdfast._logs.log import Log
from holdfast._model.duration import DAY, MORE_THAN_ZERO, as_timedelta
from holdfast._model.errors import AbortReason, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._engine.application import Application, MakeRelaying, Relaying
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.keeper import Kept
    from holdfast._engine.runners.loop import Background
    from holdfast._engine.serving import Serving
    from holdfast._model.duration import Duration
    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings


log = Log(__name__)

# For this long after its start, in seconds, a worker assumes that a payload it cannot read is for another version.
DEPLOY_GRACE = 600.0
# A handler whose signal was aborted has this many seconds to stop; after that its job is released without it.
ABORT_GRACE = 1.0
# With several databases, the start waits this many seconds for each; a later one is served once it answers.
START_SECONDS = 1.5
# Outcomes that are not written within this many seconds are left to the reaper.
FLUSH_SECONDS = 5.0
# A stop exceeds the shutdown timeout by at most this many seconds: to abort, to write outcomes, to record the end.
LAST_SECONDS = 5.0


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
        poll_interval: Duration | None = None,
        next_job_delay: Mapping[str, Duration] | None = None,
        background: bool = True,
        patience: float | None = None,
    ) -> None:
        """Without `background` it has no runners and no relays, and only `drain` claims jobs.

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
        self._relays = application.relays if "relay" in self._runners else None
        self._given_queues = tuple(queues or ())
        self._stack = AsyncExitStack()
        self._started_at = time.monotonic()
        self._entered = False
        self.stopping: bool = False
        """Whether a stop was asked for."""
        self._stopped = False
        self._stop_lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._relaying: dict[str, Relaying] = {}
        self._background: Background | None = None
        self.keeper: Keeper = Keeper(self.id, on_broken=self._break)
        self.broken: asyncio.Event = asyncio.Event()
        """Set when a loop fails repeatedly and this process should be replaced."""
        self._hooks = Hooks(
            self.keeper, on_failure=application.failure_hooks, on_dead_letter=application.dead_letter_hooks
        )
        self._job_log = JobLog(self.id)
        self._transitions = Transitions(self.id, [self._job_log, self._hooks, *application.listeners])
        slots = slots_of(kinds, settings, queues=queues, next_job_delay=next_job_delay or {})
        self._executors = Executors(max(1, slots.concurrency))
        self._handlers = Handlers(
            codec=application.codec,
            executors=self._executors,
            middlewares=application.middlewares,
            worker=self.id,
            retry=settings.retry,
            new=lambda: time.monotonic() - self._started_at < DEPLOY_GRACE,
            grace=lambda: DEPLOY_GRACE,
            spans=self._transitions.spans,
        )
        self._dispatcher = Dispatcher(slots, self._handlers)
        several = len(application.urls) > 1
        parts = WorkerParts(
            name=self.id,
            application=replace(application, settings=_polling(settings, poll_interval)),
            dispatcher=self._dispatcher,
            transitions=self._transitions,
            claiming="outbox" in self._runners,
            relaying=self._relays is not None,
            lending=several,
            patience=START_SECONDS if patience is None and several else patience,
            on_broken=self._break,
        )
        self.pipelines: list[Pipeline] = [Pipeline(url, parts) for url in application.urls]

    async def __aenter__(self) -> Self:
        if self._entered:
            raise HoldfastError("a worker runs once: for another run, call app.worker() again")
        self._entered = True
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            self._handlers.state = await stack.enter_async_context(self._application.lifespan())
            await stack.enter_async_context(self._executors)
            await stack.enter_async_context(self._hooks)
            try:
                await self._start(stack)
            except BaseException:
                # Pipelines that have started may hold jobs.
                await self._stop(0.0)
                raise
            self._stack = stack.pop_all()
        self._transitions.tell("worker_started")
        queues, kinds = ",".join(self._dispatcher.slots.queues), self._application.kinds
        if self._has_background:
            for said in left_out(self._application.settings, self._application.runner_names):
                log.warning("%s", said, extra={"worker": self.id})
        log.info("worker started", extra={"worker": self.id, "queues": queues, "kinds": len(kinds)})
        for lacking in uncovered(kinds, self._given_queues) if "outbox" in self._runners else ():
            log.warning(lacking, extra={"worker": self.id})
        return self

    if not TYPE_CHECKING:  # a type checker rejects a plain `with` by itself

        def __enter__(self) -> NoReturn:
            raise TypeError("a worker is asynchronous: write `async with app.worker(): …` instead of `with`")

        def __exit__(self, *_: object) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            await self._stack.aclose()
            self._job_log.sum_up()
            self._transitions.tell("worker_stopped")
            log.info("worker stopped", extra={"worker": self.id, **self.counts})

    async def _start(self, stack: AsyncExitStack) -> None:
        # Concurrently: a database that does not answer delays no other.
        starts = (stack.enter_async_context(pipeline) for pipeline in self.pipelines)
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await asyncio.gather(*(pipeline.wait_until_listening() for pipeline in self.pipelines))
        if self._relays is not None:
            await self._start_relays(stack, self._relays)
        if self._has_background:
            self._background = await stack.enter_async_context(self._in_background())

    async def _start_relays(self, stack: AsyncExitStack, make: MakeRelaying) -> None:
        for pipeline in self.pipelines:
            relaying = make(
                pipeline.url,
                worker=partial(getattr, pipeline, "worker"),
                heard=partial(getattr, pipeline, "listening"),
                transitions=self._transitions,
                keeper=self.keeper,
            )
            self._relaying[pipeline.url] = await stack.enter_async_context(relaying)
            pipeline.on_events = relaying.wake

    def _in_background(self) -> AbstractAsyncContextManager[Background]:
        return in_background(
            self._application,
            [
                RunnerDatabase(pipeline.url, pipeline.link, partial(getattr, pipeline, "worker"))
                for pipeline in self.pipelines
            ],
            state=self._handlers.state,
            transitions=self._transitions,
            keeper=self.keeper,
            counts=lambda: self.counts,
            relayed={url: partial(getattr, relaying, "counts") for url, relaying in self._relaying.items()},
        )

    @property
    def _serving(self) -> list[Serving]:
        """The serving parts of the databases that have answered."""
        return [pipeline.serving for pipeline in self.pipelines if pipeline.serving is not None]

    @property
    def counts(self) -> dict[str, int]:
        """The number of events so far by name, summed over all databases."""
        total: Counter[str] = Counter()
        for serving in self._serving:
            total.update(serving.held_jobs.counts)
        return total

    @property
    def vitals(self) -> list[Vitals]:
        """The health of each database's pipeline. Safe to read from any thread."""
        return [pipeline.vitals for pipeline in self.pipelines]

    @property
    def loops(self) -> list[Kept]:
        """All loops and threads of this worker."""
        return [*self.keeper.loops, *(kept for pipeline in self.pipelines for kept in pipeline.keeper.loops)]

    def _break(self, _name: str) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.broken.set)

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
            serving.attempts.give_back_waiting()
        outlasted = 0
        if not await self._dispatcher.drained(max(0.0, ends - time.monotonic())):
            budget = self._application.settings.tick_overall_max / timedelta(milliseconds=1)
            label = self._application.settings.label("tick_overall_max")
            why = f"the job still ran at the end of its one-shot tick, after {budget:g} ms: {label}"
            outlasted = sum(serving.held_jobs.outlasted(why) for serving in self._serving)
            log.warning("jobs still ran when the time of the tick was up", extra={"jobs": outlasted, "ms": budget})
            await self._dispatcher.drained(ABORT_GRACE)
            for serving in self._serving:
                serving.attempts.give_up_running()
        await self._flush()
        return outlasted

    async def _flush(self, seconds: float = FLUSH_SECONDS) -> None:
        await asyncio.gather(*(serving.flush(seconds) for serving in self._serving))

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

    async def _stop_background(self, seconds: float) -> None:
        if self._background is not None:
            await self._background.stop(seconds)

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
        """Stop within the timeout plus `LAST_SECONDS`. Each step may use the time that is left."""
        last = time.monotonic() + timeout + LAST_SECONDS
        for pipeline in self.pipelines:
            pipeline.stop_claiming()
        ending = asyncio.create_task(self._end_jobs(timeout))
        await asyncio.gather(
            ending,
            self._stop_background(timeout),
            *(pipeline.claims_ended(max(timeout, ABORT_GRACE)) for pipeline in self.pipelines),
        )
        await self._flush(max(ABORT_GRACE, min(FLUSH_SECONDS, last - time.monotonic() - ABORT_GRACE)))
        left = max(ABORT_GRACE, last - time.monotonic())
        await asyncio.gather(*(pipeline.say_stopped(ending.result(), left) for pipeline in self.pipelines))
        self._stopped = True

    async def _end_jobs(self, timeout: float) -> str:  # noqa: ASYNC109 - as above
        """Wait for running jobs, then abort them. Return the reason to record."""
        if await self._dispatcher.drained(timeout):
            return "stopped"
        for serving in self._serving:
            serving.held_jobs.abort_all(AbortReason.shutdown)
        if await self._dispatcher.drained(ABORT_GRACE):
            return "stopped, with jobs aborted"
        log.warning("handlers did not stop when asked to; their jobs are left to the reaper")
        return "stopped, with handlers that ignored it"


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


def _polling(settings: Settings, given: Duration | None) -> Settings:
    """Return the settings with polling at least this often, in seconds or a timedelta: at most a day."""
    if given is None:
        return settings
    interval = as_timedelta("poll_interval", given, least=MORE_THAN_ZERO, limit=DAY)
    return replace(
        settings,
        idle_max=interval,
        idle_min=min(settings.idle_min, interval),
        jitter=min(settings.jitter, interval),
    )
