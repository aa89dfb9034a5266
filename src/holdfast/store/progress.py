"""Progress: how far running jobs have come, as their handlers say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.lease import Held
from holdfast.store.statement import Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.job import Progress


def report_progress(worker: int, reports: Mapping[Held, Progress]) -> Statement[set[Held]]:
    """Write how far these jobs have come; answer with those written: not what is locked just now, or lost."""
    return Statement(
        statements()["report_progress"],
        {
            "worker": worker,
            "ids": number_array(claim.id for claim in reports),
            "tokens": number_array(claim.token for claim in reports),
            "fractions": text_array(str(progress.fraction) for progress in reports.values()),
            "notes": text_array(progress.note for progress in reports.values()),
        },
        lambda rows: {Held._make(row) for row in rows},
    )
