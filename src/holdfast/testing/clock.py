"""Time that passes for jobs: they are moved back, nobody sleeps."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.store.testing import advance_jobs, end_windows, open_windows

if TYPE_CHECKING:
    from holdfast.testing.stage import Run


class Clock:
    """Remembers how much time has passed for each unique window: moved back, its row would match no more."""

    def __init__(self) -> None:
        self._passed: dict[int, timedelta] = {}

    async def advance(self, run: Run, span: timedelta) -> None:
        if span < timedelta(0):
            raise ValueError("time does not go back")
        last: int | None = 0
        while last is not None:
            last = await run(advance_jobs(span, last))
        await self._advance_windows(run, span)

    async def _advance_windows(self, run: Run, span: timedelta) -> None:
        """End those that are over by now. The others stay as they are, for they still match."""
        left = await run(open_windows())
        self._passed = {job: self._passed.get(job, timedelta(0)) + span for job in left}
        over = [job for job, passed in self._passed.items() if left[job] <= passed.total_seconds()]
        if over:
            await run(end_windows(over))
