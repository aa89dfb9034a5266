"""Access to the HTTP API: tokens (only their digests are stored), sessions, the audit log and idempotency keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._store.statement import Row, Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._store.statement import Parameter


class AccessToken(NamedTuple):
    """An access token, without its secret."""

    key: str
    name: str
    role: str
    digest: str
    """The SHA-256 digest of the secret, in hex."""
    created_at: datetime
    expires_at: datetime | None
    expired: bool
    """By PostgreSQL's clock."""
    revoked_at: datetime | None


def make_access_token(key: str, *, name: str, role: str, digest: str, days: float | None) -> Statement[datetime | None]:
    """Store a new token and return when it expires. `days`: its lifetime; None is unlimited."""
    params: dict[str, Parameter] = {"key": key, "name": name, "role": role, "digest": digest, "days": days}
    return Statement(statements()["make_access_token"], params, lambda rows: rows[0][0])


def is_name_free(name: str) -> Statement[bool]:
    """Return whether no valid token has this name; an expired token frees its name."""
    return Statement(statements()["is_name_free"], {"name": name}, lambda rows: bool(rows[0][0]))


def find_access_token(key: str) -> Statement[AccessToken | None]:
    return Statement(
        statements()["find_access_token"], {"key": key}, lambda rows: AccessToken._make(rows[0]) if rows else None
    )


def list_access_tokens(most: int = 1_000) -> Statement[list[AccessToken]]:
    """Return up to `most` tokens, newest first."""
    return Statement(statements()["list_access_tokens"], {"most": most}, _tokens)


def revoke_access_token(key: str) -> Statement[bool]:
    """Revoke a token; return False when no valid token has this key."""
    return Statement(statements()["revoke_access_token"], {"key": key}, bool)


def end_session(session: str, until: float) -> Statement[None]:
    """Invalidate a session. `until`: when it would have expired, in seconds since 1970."""
    return Statement(statements()["end_session"], {"id": session, "until": until}, lambda _: None)


def is_session_ended(session: str) -> Statement[bool]:
    return Statement(statements()["is_session_ended"], {"id": session}, lambda rows: bool(rows[0][0]))


def _tokens(rows: Sequence[Row]) -> list[AccessToken]:
    return [AccessToken._make(row) for row in rows]


_LONGEST_TARGET = 250


class AuditRow(NamedTuple):
    id: int
    at: datetime
    who: str
    credential: str | None
    address: str | None
    role: str
    action: str
    target: str | None
    jobs: int | None
    ids: list[int] | None
    detail: dict[str, Any]


def record_audit(  # noqa: PLR0913 - one keyword per column
    who: str,
    role: str,
    action: str,
    *,
    credential: str | None = None,
    address: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    ids: Iterable[int] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Statement[int]:
    """Record an operator's action and the jobs it affected; return the id of the audit row."""
    params: dict[str, Parameter] = {
        "who": who[:_LONGEST_TARGET].replace("\0", "") or "?",
        "credential": credential and credential[:_LONGEST_TARGET].replace("\0", ""),
        "address": address and address[:_LONGEST_TARGET].replace("\0", ""),
        "ids": None if ids is None else number_array(ids),
        "role": role,
        "action": action,
        "target": None if target is None else target[:_LONGEST_TARGET].replace("\0", ""),
        "jobs": jobs,
        "detail": json.dumps(detail or {}, default=str),
    }
    return Statement(statements()["record_audit"], params, lambda rows: int(rows[0][0]))


def list_audit(*, before: int | None = None, most: int = 50) -> Statement[list[AuditRow]]:
    """Return up to `most` audit rows, newest first. `before`: only rows with a smaller id."""
    return Statement(statements()["list_audit"], {"before": before or 2**63 - 1, "most": most}, _lines)


def _lines(rows: Sequence[Row]) -> list[AuditRow]:
    return [AuditRow._make((*row[:10], json.loads(row[10]))) for row in rows]


class Answered(NamedTuple):
    request: str
    """A digest of the request."""
    answer: str | None
    """None: the request is still running, or its end is unknown."""


def forget_answered() -> Statement[None]:
    """Delete answers that are older than a day."""
    return Statement(statements()["forget_answered"], {}, lambda _: None)


def begin_answered(who: str, key: str, request: str) -> Statement[bool]:
    """Record that `who` sends this request under this key; return False when they have used the key before."""
    return Statement(statements()["begin_answered"], {"who": who, "key": key, "request": request}, bool)


def find_answered(who: str, key: str) -> Statement[Answered | None]:
    return Statement(
        statements()["find_answered"], {"who": who, "key": key}, lambda rows: Answered._make(rows[0]) if rows else None
    )


def keep_answered(who: str, key: str, answer: str) -> Statement[None]:
    return Statement(statements()["keep_answered"], {"who": who, "key": key, "answer": answer}, lambda _: None)


def drop_answered(who: str, key: str) -> Statement[None]:
    """Free the key: the request had no effect."""
    return Statement(statements()["drop_answered"], {"who": who, "key": key}, lambda _: None)
