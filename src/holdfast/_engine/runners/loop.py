"""Background mode: every runner has its own loop over the same tick, so a slow one delays no other."""

from __future__ import annotations

import asyncio
import math
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage
from holdfast._engine.runners.ticker import ABORT_GRACE, Limits
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast._engine.keeper import Keeper, Kept, Turn
    from holdfast._engine.report.transition import Ticked
    from holdfast._engine.runner import Runner
    from holdfast._engine.runners.ticker import Ticker
    from holdfast._model.settings import Settings

log = Log(__name__)

SHORTEST_REST = 0.001


class Pace:
    """How long a loop rests after a tick, in seconds."""

    def __init__(
        self, settings: Settings, *, jitter: Callable[[float, float], float] = random.uniform, patient: bool = False
    ) -> None:
        """`patient`: rest twice as long if the next slot is far."""
        self._patient = patient
        self._busy = settings.busy_delay.total_seconds()
        self._least = settings.idle_min.total_seconds()
        self._longest = settings.idle_max.total_seconds()
        self._jitter = settings.jitter.total_seconds()
        self._error = settings.error_backoff.total_seconds()
        self._error_jitter = settings.error_jitter.total_seconds()
        self._random = jitter
        self._idle = self._least

    def after(self, ticked: Ticked) -> float:
        """Return the rest: short after work, growing while idle, long after a failure, at most until the next slot."""
        if ticked.outcome == "failed":
            return self.after_failure()
        if ticked.busy or ticked.next_look is not None:
            self._idle = self._least
            rest = (self._busy if ticked.busy else self._longest) + self._random(0, self._jitter)
            if ticked.next_look is None:
                return rest
            return min(2 * rest if self._patient and not ticked.busy else rest, ticked.next_look)
        rest = self._idle + self._random(0, self._jitter)
        self._idle = min(self._idle * 2, self._longest)
        return rest

    def after_failure(self) -> float:
        self._idle = self._least
        return self._error + self._random(0, self._error_jitter)


class Loop:
    """Calls a step repeatedly until it is stopped. The only loop of background mode."""

    def __init__(
        self, name: str, step: Callable[[], Awaitable[Ticked]], pace: Pace, *, longest: float = math.inf
    ) -> None:
        """`longest`: seconds that a step may take. Defaults to no limit."""
        self.name = name
        self._longest = longest
        self._step = step
        self._pace = pace
        self._outage = Outage(log, "a runner cannot reach its database", runner=name)
        self._woken = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Interrupt the rest."""
        self._woken.set()

    def stop(self) -> None:
        """Start no further step. The current one continues to its end."""
        self._stopping = True
        self._woken.set()

    async def run(self, turn: Turn = unwatched) -> None:
        while not self._stopping:
            turn(self._longest)
            self._woken.clear()
            rest = await self._once()
            if not self._stopping:
                turn(rest)
                await self._rest(max(rest, SHORTEST_REST))

    async def _once(self) -> float:
        try:
            ticked = await self._step()
        except (*LOST, TimeoutError) as exc:
            return self._outage.failed(exc)
        except Exception:
            log.exception("a runner could not be started", extra={"runner": self.name})
            return self._pace.after_failure()
        self._outage.over()
        return self._pace.after(ticked)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass


class Background:
    """The loops of all runners: `async with` starts them, and leaving the block stops them gracefully."""

    def __init__(
        self, tickers: Sequence[tuple[Ticker, Sequence[Runner]]], *, settings: Settings, keeper: Keeper
    ) -> None:
        """`tickers`: for each database, the runners that run against it."""
        self._tickers = [ticker for ticker, _ in tickers]
        self._settings = settings
        self.loops = [self._loop(ticker, runner) for ticker, runners in tickers for runner in runners]
        self._keeper = keeper
        self._kept: list[Kept] = []

    async def __aenter__(self) -> Self:
        self._kept = [self._keeper.start("runner", loop.run, detail=loop.name) for loop in self.loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def wake(self, name: str) -> None:
        """Run a runner's next tick now."""
        for loop in self.loops:
            if loop.name == name:
                loop.wake()

    async def stop(self, seconds: float | None = None) -> None:
        """Start no more ticks, wait `seconds` for current ones (default: the shutdown timeout), then abort them."""
        until = time.monotonic() + (self._settings.shutdown_timeout.total_seconds() if seconds is None else seconds)
        for loop in self.loops:
            loop.stop()
        left = await self._ended(until - time.monotonic())
        if left:
            for ticker in self._tickers:
                ticker.abort(AbortReason.shutdown)
                # Cancelling a statement waits for the server. Closing its connection does not.
                ticker.database.hurry(2 * ABORT_GRACE)
            # Time for the functions to end, and for their ends to be written.
            left = await self._ended(3 * ABORT_GRACE)
        for kept in left:
            log.warning("a loop did not end: %s", kept.name)
            kept.cancel()
        # A statement that the server does not answer ends with its link.
        await asyncio.gather(*(kept.wait(ABORT_GRACE) for kept in left))
        self._kept = []

    async def _ended(self, seconds: float) -> list[Kept]:
        """Wait for the loops, and return those that have not ended."""
        await asyncio.gather(*(kept.wait(max(0.0, seconds)) for kept in self._kept))
        return [kept for kept in self._kept if not kept.done]

    def _loop(self, ticker: Ticker, runner: Runner) -> Loop:
        longest: Any = runner.max_runtime or self._settings.tick_overall_max
        limits = Limits(None, longest.total_seconds())
        step = partial(ticker.tick, runner, limits)
        return Loop(
            runner.name,
            step,
            Pace(self._settings, patient=runner.spread > 0),
            longest=limits.seconds + ABORT_GRACE + runner.grace,
        )
