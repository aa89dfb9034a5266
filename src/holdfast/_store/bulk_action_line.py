"""A bulk action as pages show it."""

from __future__ import annotations

import json
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Literal

from holdfast._store.answer import Answer, Id
from holdfast._store.job import JobStatus  # noqa: TC001 - pydantic reads the annotations
from holdfast._store.statement import Row, Statement, statement


class RefusedJob(Answer):
    """A job that an action could not be done to."""

    id: Id
    """Of the job."""
    why: str
    """Why nothing was done, in a few words."""


class BulkAction(Answer):
    """An action on all jobs that a filter finds, which workers carry out."""

    id: Id
    """Of the bulk action."""
    created_at: datetime
    """When it began. Jobs that are enqueued later are left alone, and so are jobs that fail later."""
    ended_at: datetime | None
    """When it was completed or stopped; null: it goes on."""
    state: Literal["running", "stopped", "completed"]
    """`stopped`: by a person, who can resume it where it was."""
    action: Literal["retry", "cancel", "delete", "reschedule"]
    """The action on each job."""
    statuses: list[JobStatus]
    """Only jobs in one of these, as all the following: null matches any value."""
    kind: str | None
    """Only jobs of this kind."""
    queue: str | None
    """Only jobs of this queue."""
    error_code: str | None
    """Only jobs whose last attempt failed with this code."""
    order_key: str | None
    """Only jobs with this order key."""
    tag: str | None
    """Only jobs with this tag."""
    unique_key: str | None
    """Only jobs with this unique key."""
    created_from: datetime | None
    """Only jobs created at this time or later."""
    created_until: datetime | None
    """Only jobs created before this time."""
    at: datetime | None
    """Of `reschedule`: when the jobs are due."""
    rate: float | None
    """Jobs per second; null: as fast as it goes."""
    limit: int | None
    """It ends after so many jobs; null: after all."""
    expected: int | None
    """How many jobs matched when it began; null: more than were counted."""
    done: int
    """To how many jobs it was done."""
    refused: int
    """How many jobs it could not be done to."""
    progress: float
    """From 0 to 1: by the jobs that were expected, or else by their ids."""
    who: str
    """The person who began it."""
    stopped_by: str | None
    """The person who stopped it."""
    refusals: list[RefusedJob]
    """The first twenty jobs that it could not be done to."""


def read_bulk_action(id_: int) -> Statement[BulkAction | None]:
    return statement("read_bulk_action", lambda rows: _line(rows[0]) if rows else None, id=id_)


def list_bulk_actions(*, limit: int = 50) -> Statement[list[BulkAction]]:
    """Return open actions, then the newest ones."""
    return statement("list_bulk_actions", lambda rows: [_line(row) for row in rows], limit=limit)


def _line(row: Row) -> BulkAction:
    refusals = [{"id": id_, "why": answer} for id_, answer in json.loads(row[-1] or "[]")]
    return BulkAction.of(*row[:-1], refusals)
