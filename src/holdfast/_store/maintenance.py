"""Keeps the tables small: folds tallies, drops expired days, deletes ended rows elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class TallySpan(NamedTuple):
    """A minute, an hour or a day."""

    since: datetime
    until: datetime


class ExpiredPartition(NamedTuple):
    """An expired day, and the commands that remove it, each of which runs outside a transaction."""

    name: str
    commands: list[str]


class Deletion(NamedTuple):
    """The number of rows deleted, oldest first, and the time of the last one, from which the next deletion starts."""

    rows: int
    until: datetime | None


def unfolded_spans(*, most: int, days: int = 4) -> Statement[list[TallySpan]]:
    """Return the minutes, hours and days that have more rows than necessary."""
    return Statement(
        statements()["unfolded_spans"],
        {"days": days, "most": most},
        lambda rows: [TallySpan._make(row) for row in rows],
    )


def fold_tallies(span: TallySpan) -> Statement[int]:
    """Merge the rows of one span; return how many rows were saved."""
    since, until = span.since.isoformat(), span.until.isoformat()
    return Statement(statements()["fold_tallies"], {"since": since, "until": until, "at": since}, _number)


def delete_sleepers(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_sleepers"], {"most": most}, _number)


def delete_watchers(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_watchers"], {"most": most}, _number)


def delete_sweeps(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_sweeps"], {"most": most}, _number)


def delete_workers(*, most: int = 1_000) -> Statement[int]:
    """Delete workers without a heartbeat for as long as the longest history is kept, unless they hold something."""
    return Statement(statements()["delete_workers"], {"most": most}, _number)


def delete_replays(*, most: int = 1_000) -> Statement[int]:
    """Delete the records of replays whose dead letters are gone."""
    return Statement(statements()["delete_replays"], {"most": most}, _number)


def delete_landmarks(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_landmarks"], {"most": most}, _number)


def delete_windows(*, since: datetime | None, most: int) -> Statement[Deletion]:
    """Delete windows of unique keys that have ended."""
    return Statement(statements()["delete_windows"], {"since": _bound(since), "most": most}, _deletion)


def delete_messages(*, since: datetime | None, most: int) -> Statement[Deletion]:
    """Delete inbox messages whose retention has ended."""
    return Statement(statements()["delete_messages"], {"since": _bound(since), "most": most}, _deletion)


def unread_days(*, most: int) -> Statement[list[str]]:
    """Return the expired days of the log that are kept because a subscription has not read them."""
    return Statement(statements()["unread_days"], {"most": most}, lambda rows: [row[0] for row in rows])


def expired_partitions(*, most: int) -> Statement[list[ExpiredPartition]]:
    return Statement(
        statements()["expired_partitions"], {"most": most}, lambda rows: [ExpiredPartition._make(row) for row in rows]
    )


def _number(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number


def _bound(since: datetime | None) -> str:
    return "-infinity" if since is None else since.isoformat()


def _deletion(rows: Sequence[Row]) -> Deletion:
    return Deletion._make(rows[0])
