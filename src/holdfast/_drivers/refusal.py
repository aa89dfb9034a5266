"""Translates errors of the database into errors of Holdfast, for every driver."""

from __future__ import annotations

from holdfast._model.errors import (
    AlreadyReplayed,
    ChainAwaited,
    DuplicateJob,
    HoldfastError,
    InvalidEvent,
    InvalidJob,
    SchemaMissing,
    SchemaOutdated,
    WrongIsolation,
)

# A library's error may wrap another's, which may wrap the server's.
_DEPTH = 4


def refused(exc: BaseException) -> HoldfastError | None:
    """Return the Holdfast error for an exception with a known SQLSTATE; None for any other."""
    found: object = exc
    for _ in range(_DEPTH):
        state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if isinstance(state, str):
            return _translated(state, found)
        found = getattr(found, "orig", None) or getattr(found, "__cause__", None)
    return None


def _translated(state: str, exc: object) -> HoldfastError | None:  # noqa: PLR0911 - one line per error
    match state:
        case "HF001":
            return DuplicateJob(next(iter(_ids(exc)), None))
        case "HF002":
            return InvalidJob(_said(exc, "message_primary", "message"))
        case "HF003":
            return WrongIsolation(_said(exc, "message_primary", "message"))
        case "HF004":
            return ChainAwaited(_ids(exc))
        case "HF005":
            return InvalidEvent(_said(exc, "message_primary", "message"))
        case "HF006":
            return AlreadyReplayed(next(iter(_ids(exc)), None))
        case "23502" | "23514" if _broken_rule(exc):
            of_event = (_said(exc, "table_name", "table_name") or "").startswith(("event", "inbox"))
            return (InvalidEvent if of_event else InvalidJob)(_said(exc, "message_primary", "message"))
        case "3F000":
            return SchemaMissing()
        case "42883" if "function holdfast." in (_said(exc, "message_primary", "message") or ""):
            return SchemaOutdated()
        case "42P01" if '"holdfast.' in (_said(exc, "message_primary", "message") or ""):
            return SchemaOutdated()
    return None


def _broken_rule(exc: object) -> bool:
    """Return whether a constraint of our tables failed: a missing partition has the same SQLSTATE and names none."""
    if _said(exc, "schema_name", "schema_name") != "holdfast":
        return False
    return bool(_said(exc, "constraint_name", "constraint_name") or _said(exc, "column_name", "column_name"))


def _ids(exc: object) -> list[int]:
    detail = _said(exc, "message_detail", "detail") or ""
    return [int(word) for word in detail.split() if word.isdecimal()]


def _said(exc: object, of_libpq: str, of_asyncpg: str) -> str | None:
    """Return a field of the server's error: psycopg has it in `diag`, asyncpg on the error, SQLAlchemy on its cause."""
    for source in (getattr(exc, "diag", None), exc, getattr(exc, "__cause__", None)):
        for name in (of_libpq, of_asyncpg):
            if isinstance(said := getattr(source, name, None), str):
                return said
    return None
