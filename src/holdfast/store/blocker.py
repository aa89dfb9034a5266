"""Blockers: the chains that a job comes after, and how they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.job import Blocker
from holdfast.store.statement import Row, Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Repair(NamedTuple):
    """How far a repair came."""

    until: int
    """The chain to go on after in the next one; 0: from the first."""
    repaired: int


def read_blockers(jobs: Iterable[int]) -> Statement[dict[int, list[Blocker]]]:
    """Answer with the blockers of each job that has any, in the order in which it named them."""
    return Statement(statements()["read_blockers"], {"jobs": number_array(jobs)}, _by_job)


def repair_blockers(*, since: int = 0, most: int = 1000) -> Statement[Repair]:
    """Tell jobs whose blockers ended unseen. It should never find any."""
    return Statement(
        statements()["repair_blockers"], {"since": since, "most": most}, lambda rows: Repair._make(rows[0])
    )


def _by_job(rows: Sequence[Row]) -> dict[int, list[Blocker]]:
    found: dict[int, list[Blocker]] = {}
    for job, *blocker in rows:
        found.setdefault(job, []).append(Blocker._make(blocker))
    return found
