"""Keeps the tables small: drops expired days, deletes ended rows elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, column, many, one, statement, value

if TYPE_CHECKING:
    from datetime import datetime


class ExpiredPartition(NamedTuple):
    """An expired day, and the commands that remove it, each of which runs outside a transaction."""

    name: str
    commands: list[str]


class Deletion(NamedTuple):
    """The number of rows deleted, oldest first, and the time of the last one, from which the next deletion starts."""

    rows: int
    until: datetime | None


class SetBack(NamedTuple):
    """The job after which the next batch begins, None if this was the last, and the number of rows changed."""

    until: int | None
    rows: int


def set_back_jobs(*, since: int, limit: int) -> Statement[SetBack]:
    """After the server's clock was set back, let jobs be due that the clock before made due later."""
    return statement("set_back_jobs", one(SetBack), since=since, limit=limit)


def delete_sleepers(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_sleepers", value, limit=limit)


def delete_watchers(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_watchers", value, limit=limit)


def delete_sweeps(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_sweeps", value, limit=limit)


def delete_workers(*, limit: int = 1_000) -> Statement[int]:
    """Delete workers without a heartbeat for as long as the longest history is kept, unless they hold something."""
    return statement("delete_workers", value, limit=limit)


def delete_replays(*, limit: int = 1_000) -> Statement[int]:
    """Delete the records of replays whose dead letters are gone."""
    return statement("delete_replays", value, limit=limit)


def delete_dismissals(*, limit: int = 1_000) -> Statement[int]:
    """Delete the dismissals of dead letters that have expired."""
    return statement("delete_dismissals", len, limit=limit)


def delete_landmarks(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_landmarks", value, limit=limit)


def delete_windows(*, since: datetime | None, limit: int) -> Statement[Deletion]:
    """Delete windows of unique keys that have ended."""
    return statement("delete_windows", one(Deletion), since=_bound(since), limit=limit)


def delete_messages(*, since: datetime | None, limit: int) -> Statement[Deletion]:
    """Delete inbox messages whose retention has ended."""
    return statement("delete_messages", one(Deletion), since=_bound(since), limit=limit)


def unread_days(*, limit: int) -> Statement[list[str]]:
    """Return the expired days of the log that are kept because a subscription has not read them."""
    return statement("unread_days", column, limit=limit)


def expired_partitions(*, limit: int) -> Statement[list[ExpiredPartition]]:
    return statement("expired_partitions", many(ExpiredPartition), limit=limit)


def _bound(since: datetime | None) -> str:
    return "-infinity" if since is None else since.isoformat()
