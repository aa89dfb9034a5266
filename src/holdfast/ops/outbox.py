"""The seeds' two endpoints: how the outbox fares, and one tick by hand."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.engine.tick import run_tick
from holdfast.kind import Kind
from holdfast.ops.answer import RunOnce, RunOnceSummary, Stats, StatsConfig
from holdfast.ops.refusal import Refused
from holdfast.ops.runtime import runtime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.app import Holdfast
    from holdfast.ops.answer import StatsRuntime
    from holdfast.ops.desk import Desk
    from holdfast.settings import Settings

LONGEST_START = timedelta(seconds=30)
"""A tick by hand starts nothing after this. It answers when what it started has ended, or its overall time is up."""
_MS = timedelta(milliseconds=1)
_COUNTED = ("processed", "completed", "retried", "failed", "recovered", "lost")


class TickFailed(Refused):
    """A runner failed; what was done before that is done."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "tick_failed", message)


class OutboxEndpoints:
    """Of one process: it runs one tick by hand at a time."""

    def __init__(self, app: Holdfast | None, url: str, settings: Settings) -> None:
        self._app = app
        self._url = url
        self._settings = settings
        self._running = False

    async def stats(self, desk: Desk) -> Stats:
        queue = await desk.stats_queue()
        return Stats(
            generated_at=datetime.now(UTC),
            queue=queue,
            runtime=await self._runtime(desk),
            config=config(self._settings),
        )

    async def run_once(self, before: Callable[[], Awaitable[None]]) -> RunOnce:
        """`before()`: called when nothing is in the way any more; a process that dies meanwhile leaves that behind."""
        if self._app is None or not any(isinstance(kind, Kind) for kind in self._app.kinds.values()):
            raise Refused(409, "no_handlers", "No handlers are loaded here: start this process with the application.")
        if self._running:
            raise Refused(409, "already_running", "A tick runs already in this process.")
        self._running = True
        try:
            await before()
            result = await run_tick(self._app, _short(self._settings), url=self._url)
        finally:
            self._running = False
        counts: Counter[str] = Counter()
        for ticked in result.runners:
            if ticked.failure is not None:
                raise TickFailed(f"{ticked.runner}: {ticked.failure.code}: {ticked.failure.text}"[:500])
            counts.update(ticked.counts)
        summary = {name: counts[name] for name in _COUNTED}
        return RunOnce(summary=RunOnceSummary(**summary, duration_ms=round(result.seconds * 1_000)))

    async def _runtime(self, desk: Desk) -> StatsRuntime:
        """Return what the worker in this process did; where there is none, what all that live did."""
        here = (socket.gethostname(), os.getpid())
        workers = [] if self._app is None else (await desk.workers()).workers
        ours = {worker.id: worker for worker in workers if worker.state == "live" and (worker.host, worker.pid) == here}
        if not ours:
            return await desk.fleet_runtime()
        counters = [worker.counters for worker in ours.values()]
        return runtime(counters, is_running=True, last_error=await desk.last_error())


def config(settings: Settings) -> StatsConfig:
    retry = settings.retry
    return StatsConfig(
        poll_ms=settings.idle_min // _MS,
        batch_size=settings.batch_size,
        max_attempts=retry.max_attempts,
        processing_timeout_ms=settings.lease // _MS,
        retry_base_ms=retry.delay(1) // _MS,
        retry_max_ms=max(retry.steps, default=retry.maximum) // _MS,
    )


def _short(settings: Settings) -> Settings:
    return replace(
        settings,
        tick_runners=("outbox", "reaper"),
        tick_runner_max=min(settings.tick_runner_max, LONGEST_START),
    )
