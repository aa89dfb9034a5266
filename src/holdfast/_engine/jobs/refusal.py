"""Outcomes that the database or the driver does not take: whose fault it is, and which outcome it takes instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from holdfast._drivers import state_of
from holdfast._logs.failure import TEXT_LIMIT, Failure
from holdfast._model.errors import DuplicateJob, InvalidJob
from holdfast._model.outcome import Cancelled, Failed, Released, Retried

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome

# Classes of SQLSTATE. Errors of data, of constraints, of a limit of the server, and those that a trigger raises:
_OF_DATA = frozenset({"0A", "21", "22", "23", "27", "44", "54", "P0"})
# Errors of the server: no connection, a deadlock, no memory or disk, a system error.
_OF_SERVER = frozenset({"08", "40", "53", "58"})


def is_refusal(exc: Exception) -> bool:
    """Return whether the error is certainly the fault of an outcome: the same outcome would be refused again."""
    if isinstance(exc, DuplicateJob | InvalidJob):
        return True
    state = state_of(exc)
    if state is None:
        # The statement was never sent.
        return isinstance(exc, ValueError | TypeError | ArithmeticError | psycopg.DataError | psycopg.ProgrammingError)
    if state == "23514":
        # A missing partition has the same error code but no constraint name, and will be created.
        cause = exc if isinstance(exc, psycopg.Error) else exc.__cause__
        return isinstance(cause, psycopg.Error) and cause.diag.constraint_name is not None
    return state[:2] in _OF_DATA


def may_be_refusal(exc: Exception) -> bool:
    """Return whether the error may be the fault of an outcome: no connection is lost, and the server has room."""
    return (state_of(exc) or "")[:2] not in _OF_SERVER


def plainer(outcome: Outcome) -> Outcome | None:
    """Return the same outcome in plain ASCII and without a traceback, or None if it has nothing more to take away."""
    match outcome:
        case Retried(failure=it) | Failed(failure=it) if outcome.exception is not None or not _is_ascii(it):
            return replace(outcome, failure=in_ascii(it), exception=None)
        case Released(failure=Failure() as failure) | Cancelled(failure=Failure() as failure) if not _is_ascii(failure):
            return replace(outcome, failure=in_ascii(failure))
        case _:
            return None


def dead_letter(outcome: Outcome, exc: Exception) -> Failed | None:
    """Return the dead letter in place of an outcome that cannot be written because of this error, in plain ASCII.

    None: it is one.
    """
    return None if isinstance(outcome, Failed) else Failed(in_ascii(Failure.of(exc)), exc)


def _is_ascii(failure: Failure) -> bool:
    return failure.code.isascii() and failure.text.isascii()


def in_ascii(failure: Failure) -> Failure:
    """Return the same failure in plain ASCII, which every database can store."""
    code, text = (part.encode("ascii", "backslashreplace").decode() for part in (failure.code, failure.text))
    return Failure(code, text[:TEXT_LIMIT])
