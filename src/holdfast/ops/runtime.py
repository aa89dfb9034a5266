"""What workers did since they started, in the words of the stats endpoint."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.ops.answer import StatsRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def runtime(counters: Iterable[Mapping[str, int]], *, is_running: bool, last_error: str | None) -> StatsRuntime:
    """Return the sum over these workers' counters."""
    total: Counter[str] = Counter()
    for counted in counters:
        total.update(counted)
    return StatsRuntime(
        is_running=is_running,
        ticks_total=total["ticks"],
        processed_total=total["claimed"],
        retried_total=total["job_retried"],
        dead_letter_total=total["job_failed"] + total["reaped_failed"],
        recovered_stuck_total=total["job_reaped"],
        last_error=last_error,
    )
