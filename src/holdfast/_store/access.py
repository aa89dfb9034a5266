"""Access to the HTTP API: tokens (only their digests are stored), sessions, the audit log and idempotency keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._store.statement import Row, Statement, many, nothing, number_array, one_or_none, statement, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime


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
    return statement("make_access_token", value, key=key, name=name, role=role, digest=digest, days=days)


def is_name_free(name: str) -> Statement[bool]:
    """Return whether no valid token has this name; an expired token frees its name."""
    return statement("is_name_free", value, name=name)


def find_access_token(key: str) -> Statement[AccessToken | None]:
    return statement("find_access_token", one_or_none(AccessToken), key=key)


def list_access_tokens(limit: int = 1_000) -> Statement[list[AccessToken]]:
    """Return up to `limit` tokens, newest first."""
    return statement("list_access_tokens", many(AccessToken), limit=limit)


def revoke_access_token(key: str) -> Statement[bool]:
    """Revoke a token; return False when no valid token has this key."""
    return statement("revoke_access_token", bool, key=key)


def end_session(session: str, until: float) -> Statement[None]:
    """Invalidate a session. `until`: when it would have expired, in seconds since 1970."""
    return statement("end_session", nothing, id=session, until=until)


def is_session_ended(session: str) -> Statement[bool]:
    return statement("is_session_ended", value, id=session)


_LONGEST_TEXT = 250


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
    return statement(
        "record_audit",
        value,
        who=_short(who) or "?",
        credential=_short(credential),
        address=_short(address),
        ids=None if ids is None else number_array(ids),
        role=role,
        action=action,
        target=_short(target),
        jobs=jobs,
        detail=json.dumps(detail or {}, default=str),
    )


def list_audit(*, before: int | None = None, limit: int = 50) -> Statement[list[AuditRow]]:
    """Return up to `limit` audit rows, newest first. `before`: only rows with a smaller id."""
    return statement("list_audit", _audit_rows, before=before or 2**63 - 1, limit=limit)


def _audit_rows(rows: Sequence[Row]) -> list[AuditRow]:
    return [AuditRow._make((*row[:10], json.loads(row[10]))) for row in rows]


def _short(text: str | None) -> str | None:
    return text and text[:_LONGEST_TEXT].replace("\0", "")


class Answered(NamedTuple):
    request: str
    """A digest of the request."""
    answer: str | None
    """None: the request is still running, or its end is unknown."""


def forget_answered() -> Statement[None]:
    """Delete answers that are older than a day."""
    return statement("forget_answered", nothing)


def begin_answered(who: str, key: str, request: str) -> Statement[bool]:
    """Record that `who` sends this request under this key; return False when they have used the key before."""
    return statement("begin_answered", bool, who=who, key=key, request=request)


def find_answered(who: str, key: str) -> Statement[Answered | None]:
    return statement("find_answered", one_or_none(Answered), who=who, key=key)


def keep_answered(who: str, key: str, answer: str) -> Statement[None]:
    return statement("keep_answered", nothing, who=who, key=key, answer=answer)


def drop_answered(who: str, key: str) -> Statement[None]:
    """Free the key: the request had no effect."""
    return statement("drop_answered", nothing, who=who, key=key)
