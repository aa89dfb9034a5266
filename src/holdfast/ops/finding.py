"""Finding jobs: short looks first, longer ones when little was found, and never more than a bound in all."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ops import answer
from holdfast.ops.answer import Looked
from holdfast.ops.refusal import Refused
from holdfast.store.search import (
    AFTER_ALL,
    Search,
    Span,
    follow_ids,
    homes_of,
    read_landmarks,
    read_payloads,
    search_home,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from holdfast.ops.pool import Talk
    from holdfast.ops.question import JobFilter
    from holdfast.ops.redaction import Redaction
    from holdfast.store.search import FoundJob, Look

# Together 50,000: so many jobs are looked at in each home, and no more, before the question is answered.
LOOKS = (500, 4_500, 45_000)
# A search for a text reads so many payloads at a time, ends after so many seconds, and passes over larger payloads.
TEXT_SECONDS = 2.0
LARGEST_SEARCHED = 262_144
_PAGE = 200


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
) -> Found:
    """Return the newest jobs that match, at most so many, older than `before`.

    If a longer look takes too long, the answer is what the shorter ones found.
    """
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
            one = search_home(home, which, above, look=look, most=wanted)
            if look == LOOKS[0]:
                looks.append(await talk.ask(one))
            elif (seen_there := await talk.try_to_ask(one)) is not None:
                looks.append(seen_there)
            else:
                return Found(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))
        reached = _reached(looks, look, wanted)
        jobs = sorted((job for one in looks for job in one.found if job.id >= reached), key=lambda job: -job.id)
        found += jobs
        seen += sum(one.jobs for one in looks)
        back_to = _earliest(back_to, looks)
        if len(found) > most:
            return Found(found[:most], found[most - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        if reached <= span.least:
            return Found(found, None, Looked(jobs=seen, back_to=back_to, complete=True))
        span = Span(span.least, reached)
    return Found(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))


async def find_text(
    talk: Talk, which: Search, shows: Callable[[str, str], bool], *, most: int, before: int | None = None
) -> Found:
    """Return the newest jobs of whose payloads `shows(kind, payload)` is true.

    How far it looks does not depend on what is hidden: neither the answer nor its extent tells anything about that.
    """
    ends = time.monotonic() + TEXT_SECONDS
    found: list[FoundJob] = []
    seen, back_to = 0, None
    while True:
        page = await find(talk, which, most=_PAGE, before=before)
        payloads = await talk.try_to_ask(read_payloads(page.jobs, largest=LARGEST_SEARCHED)) if page.jobs else {}
        if payloads is None:
            if not seen:
                raise Refused(503, "too_slow", "The database took too long to answer: ask for less, or again later.")
            return Found(found, before, Looked(jobs=seen, back_to=back_to, complete=False))
        found += await asyncio.to_thread(_showing, page.jobs, payloads, shows)
        full = len(page.jobs) == _PAGE
        seen += _PAGE if full else page.looked.jobs
        back_to = page.jobs[-1].created_at if full else page.looked.back_to or back_to
        if len(found) > most:
            return Found(found[:most], found[most - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        before = page.next
        if before is None or not full or time.monotonic() > ends:
            return Found(found, before, Looked(jobs=seen, back_to=back_to, complete=before is None))


async def find_asked(  # noqa: PLR0913 - one keyword per bound
    talk: Talk, which: Search, text: str | None, redaction: Redaction, *, most: int, before: int | None = None
) -> Found:
    """Return the newest jobs that match and, if a text is given, show it in their payloads."""
    if text is None:
        return await find(talk, which, most=most, before=before)
    return await find_text(
        talk, which, lambda kind, payload: redaction.shows(kind, payload, text), most=most, before=before
    )


def search_of(asked: JobFilter) -> Search:
    return Search(**asked.model_dump(include=set(type(asked).model_fields) & set(Search.__dataclass_fields__)))


def narrowed(which: Search, status: str) -> Search:
    return replace(which, status=status)


def line(job: FoundJob) -> answer.JobLine:
    return answer.JobLine.model_validate(job._asdict())


def _showing(jobs: list[FoundJob], payloads: Mapping[int, str], shows: Callable[[str, str], bool]) -> list[FoundJob]:
    return [job for job in jobs if job.id in payloads and shows(job.kind, payloads[job.id])]


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
