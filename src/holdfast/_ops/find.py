"""Search for jobs: short scans first, longer ones if they found too few, within a fixed limit."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops import responses
from holdfast._ops.person import RequestRefused
from holdfast._ops.responses import Looked
from holdfast._store.search import (
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

    from holdfast._ops.pool import Transaction
    from holdfast._ops.redaction import Redaction
    from holdfast._ops.requests import JobFilter
    from holdfast._store.search import FoundJob, Scan

# Together 50,000: at most so many jobs are scanned per table in one search.
LOOKS = (500, 4_500, 45_000)
# A text search ends after this many seconds, skips payloads above this many bytes, and reads pages of this many jobs.
TEXT_SECONDS = 2.0
LARGEST_SEARCHED = 262_144
_PAGE = 200


class FoundJobs(NamedTuple):
    """Jobs, newest first, and the id to continue from."""

    jobs: list[FoundJob]
    next: int | None
    looked: Looked


async def find(
    transaction: Transaction,
    which: Search,
    *,
    most: int,
    before: int | None = None,
) -> FoundJobs:
    """Return the newest matching jobs, at most `most`, with ids below `before`.

    If a longer scan times out, the result of the shorter ones is returned.
    """
    await transaction.ask(follow_ids())
    span = Span(0, AFTER_ALL)
    if which.created_from or which.created_until:
        span = await transaction.ask(read_landmarks(which.created_from, which.created_until))
    span = Span(span.least, min(span.before, before or AFTER_ALL))
    found: list[FoundJob] = []
    seen, back_to = 0, None
    for look in LOOKS:
        wanted = most + 1 - len(found)
        looks: list[Scan] = []
        for home in homes_of(which):
            # Rows below the end of another table's scan are left to the next scan.
            above = Span(max(span.least, _reached(looks, look, wanted)), span.before)
            one = search_home(home, which, above, look=look, most=wanted)
            if look == LOOKS[0]:
                looks.append(await transaction.ask(one))
            elif (seen_there := await transaction.try_to_ask(one)) is not None:
                looks.append(seen_there)
            else:
                return FoundJobs(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))
        reached = _reached(looks, look, wanted)
        jobs = sorted((job for one in looks for job in one.found if job.id >= reached), key=lambda job: -job.id)
        found += jobs
        seen += sum(one.jobs for one in looks)
        back_to = _earliest(back_to, looks)
        if len(found) > most:
            return FoundJobs(found[:most], found[most - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        if reached <= span.least:
            return FoundJobs(found, None, Looked(jobs=seen, back_to=back_to, complete=True))
        span = Span(span.least, reached)
    return FoundJobs(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))


async def find_text(
    transaction: Transaction, which: Search, shows: Callable[[str, str], bool], *, most: int, before: int | None = None
) -> FoundJobs:
    """Return the newest jobs for whose payload `shows(kind, payload)` is true.

    The extent of the scan does not depend on hidden values, so the answer reveals nothing about them.
    """
    ends = time.monotonic() + TEXT_SECONDS
    found: list[FoundJob] = []
    seen, back_to = 0, None
    while True:
        page = await find(transaction, which, most=_PAGE, before=before)
        payloads = await transaction.try_to_ask(read_payloads(page.jobs, largest=LARGEST_SEARCHED)) if page.jobs else {}
        if payloads is None:
            if not seen:
                raise RequestRefused(
                    503, "too_slow", "The database took too long to answer: ask for less, or again later."
                )
            return FoundJobs(found, before, Looked(jobs=seen, back_to=back_to, complete=False))
        found += await asyncio.to_thread(_showing, page.jobs, payloads, shows)
        full = len(page.jobs) == _PAGE
        seen += _PAGE if full else page.looked.jobs
        back_to = page.jobs[-1].created_at if full else page.looked.back_to or back_to
        if len(found) > most:
            return FoundJobs(found[:most], found[most - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        before = page.next
        if before is None or not full or time.monotonic() > ends:
            return FoundJobs(found, before, Looked(jobs=seen, back_to=back_to, complete=before is None))


async def find_asked(  # noqa: PLR0913 - one keyword per bound
    transaction: Transaction,
    which: Search,
    text: str | None,
    redaction: Redaction,
    *,
    most: int,
    before: int | None = None,
) -> FoundJobs:
    """Return the newest matching jobs. With a `text`, only those whose redacted payload contains it."""
    if text is None:
        return await find(transaction, which, most=most, before=before)
    return await find_text(
        transaction, which, lambda kind, payload: redaction.shows(kind, payload, text), most=most, before=before
    )


def search_of(asked: JobFilter) -> Search:
    return Search(**asked.model_dump(include=set(type(asked).model_fields) & set(Search.__dataclass_fields__)))


def narrowed(which: Search, status: str) -> Search:
    return replace(which, status=status)


def line(job: FoundJob) -> responses.JobLine:
    return responses.JobLine.model_validate(job._asdict())


def _showing(jobs: list[FoundJob], payloads: Mapping[int, str], shows: Callable[[str, str], bool]) -> list[FoundJob]:
    return [job for job in jobs if job.id in payloads and shows(job.kind, payloads[job.id])]


def _reached(looks: list[Scan], look: int, most: int) -> int:
    """Return the id down to which every table was scanned completely; 0 for a table without more rows."""
    ends = [0]
    for one in looks:
        if len(one.found) == most:  # more may follow below the last one
            ends.append(one.found[-1].id)
        elif one.jobs == look and one.least is not None:
            ends.append(one.least)
    return max(ends)


def _earliest(known: datetime | None, looks: list[Scan]) -> datetime | None:
    times = [time for time in (known, *(one.back_to for one in looks)) if time is not None]
    return min(times, default=None)
