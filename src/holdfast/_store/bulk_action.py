"""Begins, carries out, stops and resumes bulk actions: those on all jobs that a filter finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, one_or_none, statement, text_array, time_text, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast._store.search import Search

# The most jobs of a portion, which is one transaction.
PORTION = 50


class Portion(NamedTuple):
    """The jobs of a portion that were acted on, and what follows."""

    bulk: int | None
    """None: no action was due."""
    action: str | None
    ended: bool
    """Whether the action is completed."""
    wait_ms: int
    """After how long the next portion is due."""
    ids: list[int]
    """Of the jobs that it was done to."""
    answers: list[str]
    """Of each of them; see `act_on_jobs`."""
    refused: int


def begin_bulk_action(  # noqa: PLR0913 - one keyword per column
    action: str,
    which: Search,
    statuses: Sequence[str],
    *,
    due: datetime | None,
    rate: float | None,
    most: int | None,
    expected: int | None,
    who: str,
    credential: str | None,
    role: str,
) -> Statement[int | None]:
    """Begin an action on the jobs that exist now; return its id, None when a hundred are open."""
    return statement(
        "begin_bulk_action",
        lambda rows: rows[0][0] if rows else None,
        action=action,
        statuses=text_array(statuses),
        kind=which.kind,
        queue=which.queue,
        error_code=which.error_code,
        order_key=which.order_key,
        tag=which.tag,
        unique_key=which.unique_key,
        created_from=time_text(which.created_from),
        created_until=time_text(which.created_until),
        due=time_text(due),
        rate=rate,
        most=most,
        expected=expected,
        who=who,
        credential=credential,
        role=role,
    )


def advance_bulk_action(only: int | None = None, *, most: int = PORTION) -> Statement[Portion | None]:
    """Act on the next portion that is due, of at most `most` jobs; None when no action is open. Needs READ COMMITTED.

    `only`: this action. Default: the one that has waited longest.
    """
    return statement("advance_bulk_action", one_or_none(Portion), only=only, most=most)


def is_bulk_action_open() -> Statement[bool]:
    return statement("is_bulk_action_open", value)


def stop_bulk_action(id_: int, by: str) -> Statement[bool]:
    """Stop an action after its current portion; False when it is not running."""
    return statement("stop_bulk_action", bool, id=id_, by=by)


def resume_bulk_action(id_: int) -> Statement[bool]:
    """Let a stopped action go on where it was; False when it was not stopped."""
    return statement("resume_bulk_action", bool, id=id_)


def delete_bulk_actions(*, limit: int = 1_000) -> Statement[int]:
    """Delete actions that ended longer ago than dead letters are kept."""
    return statement("delete_bulk_actions", len, limit=limit)
