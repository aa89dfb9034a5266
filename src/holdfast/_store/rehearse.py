"""Reads everything that waits for the code of an application: jobs, journals, messages, schedules and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, many, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = 1000


class WaitingJob(NamedTuple):
    """A live job."""

    id: int
    kind: str
    version: int
    payload: str
    """JSON text."""
    is_story: bool


class RecordedStep(NamedTuple):
    """A step of a live story."""

    job_id: int
    name: str
    state: str | None
    result: str | None


class WaitingMessage(NamedTuple):
    """A message that its story has not received."""

    job_id: int
    name: str
    payload: str


class WaitingSchedule(NamedTuple):
    """A stored schedule, and the job that it enqueues."""

    name: str
    kind: str
    version: int
    payload: str


class ReadingSubscription(NamedTuple):
    """A stored subscription; `after`: all events up to this one were handed over."""

    name: str
    makes_jobs: bool
    topics: Sequence[str]
    after: int


class WaitingEvent(NamedTuple):
    """An event, and the payload of the job that a subscription makes of it."""

    id: int
    payload: str


def waiting_jobs(after: int) -> Statement[list[WaitingJob]]:
    return statement("waiting_jobs", many(WaitingJob), after=after, limit=PAGE)


def recorded_steps(jobs: Iterable[int]) -> Statement[list[RecordedStep]]:
    return statement("recorded_steps", many(RecordedStep), jobs=number_array(jobs))


def waiting_messages(jobs: Iterable[int]) -> Statement[list[WaitingMessage]]:
    return statement("waiting_messages", many(WaitingMessage), jobs=number_array(jobs))


def waiting_schedules() -> Statement[list[WaitingSchedule]]:
    return statement("waiting_schedules", many(WaitingSchedule))


def reading_subscriptions() -> Statement[list[ReadingSubscription]]:
    return statement("reading_subscriptions", many(ReadingSubscription))


def waiting_events(topics: Iterable[str], after: int) -> Statement[list[WaitingEvent]]:
    return statement("waiting_events", many(WaitingEvent), topics=text_array(topics), after=after, limit=PAGE)
