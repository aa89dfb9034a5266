"""Finding jobs: short looks first, longer ones when little was found, and never more than a bound in all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ops import answer
from holdfast.ops.answer import Looked
from holdfast.store.search import AFTER_ALL, Search, Span, follow_ids, homes_of, read_landmarks, search_home

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.ops.pool import Talk
    from holdfast.ops.question import JobFilter
    from holdfast.store.search import FoundJob, Look

# Together 50,000: so many jobs are looked at in each home, and no more, before the question is answered.
LOOKS = (500, 4_500, 45_000)


class Found(NamedTuple):
    """Jobs, newest first, and where to go on."""

    jobs: list[FoundJob]
    next: int | None
    looked: Looked


async def find(
    talk: Talk,
    which: Search,
    *,
    most: int,
    before: int | None = None,
    keep: Callable[[FoundJob], bool] | None = None,
) -> Found:
    """Return the newest jobs that match, at most so many, older than `before`."""
    await talk.ask(follow_ids())
    span = Span(0, AFTER_ALL)
    if which.created_from or which.created_until:
        span = await talk.ask(read_landmarks(which.created_from, which.created_until))
    span = Span(span.least, min(span.before, before or AFTER_ALL))
    found: list[FoundJob] = []
    seen, back_to = 0, None
    for look in LOOKS:
        wanted = most + 1 - len(found)
        looks: list[Look] = []
        for home in homes_of(which):
            # What lies below the end of an earlier home's look is for the next look.
            above = Span(max(span.least, _reached(looks, look, wanted)), span.before)
            looks.append(await talk.ask(search_home(home, which, above, look=look, most=wanted)))
        reached = _reached(looks, look, wanted)
        jobs = sorted((job for one in looks for job in one.found if job.id >= reached), key=lambda job: -job.id)
        found += [job for job in jobs if keep is None or keep(job)]
        seen += sum(one.jobs for one in looks)
        back_to = _earliest(back_to, looks)
        if len(found) > most:
            return Found(found[:most], found[most - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        if reached <= span.least:
            return Found(found, None, Looked(jobs=seen, back_to=back_to, complete=True))
        span = Span(span.least, reached)
    return Found(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))


def search_of(asked: JobFilter) -> Search:
    return Search(**asked.model_dump(include=set(type(asked).model_fields) & set(Search.__dataclass_fields__)))


def narrowed(which: Search, status: str) -> Search:
    return replace(which, status=status)


def line(job: FoundJob) -> answer.JobLine:
    return answer.JobLine.model_validate(job._asdict())


def _reached(looks: list[Look], look: int, most: int) -> int:
    """Return down to which id every home was seen whole; a home that has no more was seen whole to the end."""
    ends = [0]
    for one in looks:
        if len(one.found) == most:  # there may be more of them below the last
            ends.append(one.found[-1].id)
        elif one.jobs == look and one.least is not None:
            ends.append(one.least)
    return max(ends)


def _earliest(known: datetime | None, looks: list[Look]) -> datetime | None:
    times = [time for time in (known, *(one.back_to for one in looks)) if time is not None]
    return min(times, default=None)
