"""The outbox endpoints: statistics, and one manual tick."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._engine.registration import shown
from holdfast._model.kind import Kind
from holdfast._ops.caller import RequestRefused
from holdfast._ops.fleet import COUNTED, runtime
from holdfast._ops.responses.fleet import RunOnce, RunOnceSummary, Stats, StatsRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._app.app import Holdfast
    from holdfast._model.settings import Settings
    from holdfast._ops.service import Service


LONGEST_START = timedelta(seconds=30)
"""A manual tick starts nothing after this time. It answers when all it started has ended, or at its overall limit."""


class TickFailed(RequestRefused):
    """A runner failed. Work done before the failure is kept."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "tick_failed", message)


class OutboxEndpoints:
    """The outbox endpoints of one process, which runs one manual tick at a time."""

    def __init__(self, app: Holdfast | None, url: str, settings: Settings) -> None:
        self._app = app
        self._url = url
        self._settings = settings
        self._running = False

    async def stats(self, service: Service) -> Stats:
        queue = await service.stats_queue()
        return Stats(
            generated_at=datetime.now(UTC),
            queue=queue,
            runtime=await self._runtime(service),
            config=await service.stats_config(shown(self._settings)),
        )

    async def run_once(self, before: Callable[[], Awaitable[None]]) -> RunOnce:
        """Run one tick. `before()` is called first, and its effect remains if the process dies during the tick."""
        if self._app is None or not any(isinstance(kind, Kind) for kind in self._app.kinds.values()):
            raise RequestRefused(
                409, "no_handlers", "No handlers are loaded here: start this process with the application."
            )
        if self._running:
            raise RequestRefused(409, "already_running", "A tick runs already in this process.")
        self._running = True
        try:
            await before()
            result = await run_tick(application_of(self._app, _short(self._settings), url=self._url))
        finally:
            self._running = False
        counts: Counter[str] = Counter()
        for ticked in result.runners:
            if ticked.failure is not None:
                raise TickFailed(f"{ticked.runner}: {ticked.failure.code}: {ticked.failure.text}"[:500])
            counts.update(ticked.counts)
        summary = {name: counts[name] for name in COUNTED}
        return RunOnce(summary=RunOnceSummary(**summary, duration_ms=round(result.seconds * 1_000)))

    async def _runtime(self, service: Service) -> StatsRuntime:
        """Return the counters of this process's worker, or of all live workers if there is none."""
        here = (socket.gethostname(), os.getpid())
        workers = [] if self._app is None else (await service.workers()).items
        ours = {worker.id: worker for worker in workers if worker.state == "live" and (worker.host, worker.pid) == here}
        if not ours:
            return await service.fleet_runtime()
        counters = [worker.counters for worker in ours.values()]
        return runtime(counters, is_running=True, last_error=await service.last_error())


def _short(settings: Settings) -> Settings:
    return replace(
        settings,
        tick_runners=("outbox", "-relay", "-schedules", "-maintenance"),
        tick_runner_max=min(settings.tick_runner_max, LONGEST_START),
    )
