"""Tokens with which people and programs come in over HTTP. Only digests are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.statement import Parameter


class AccessToken(NamedTuple):
    """A token, without its secret."""

    key: str
    name: str
    role: str
    digest: str
    """Of the secret: SHA-256, in hex."""
    created_at: datetime
    expires_at: datetime | None
    expired: bool
    """By PostgreSQL's clock."""
    revoked_at: datetime | None


def make_access_token(key: str, *, name: str, role: str, digest: str, days: float | None) -> Statement[datetime | None]:
    """Keep a new token for so many days, or for ever; answer when it expires."""
    params: dict[str, Parameter] = {"key": key, "name": name, "role": role, "digest": digest, "days": days}
    return Statement(statements()["make_access_token"], params, lambda rows: rows[0][0])


def is_name_free(name: str) -> Statement[bool]:
    """Answer whether no token of use has this name; one that has expired gives its name up."""
    return Statement(statements()["is_name_free"], {"name": name}, lambda rows: bool(rows[0][0]))


def find_access_token(key: str) -> Statement[AccessToken | None]:
    return Statement(
        statements()["find_access_token"], {"key": key}, lambda rows: AccessToken._make(rows[0]) if rows else None
    )


def list_access_tokens(most: int = 1_000) -> Statement[list[AccessToken]]:
    """Answer with the newest first."""
    return Statement(statements()["list_access_tokens"], {"most": most}, _tokens)


def revoke_access_token(key: str) -> Statement[bool]:
    """Let a token be of no use from now on; False when there is none that is."""
    return Statement(statements()["revoke_access_token"], {"key": key}, bool)


def end_session(session: str, until: float) -> Statement[None]:
    """Let a session be of no use, which would last until then: seconds since 1970."""
    return Statement(statements()["end_session"], {"id": session, "until": until}, lambda _: None)


def is_session_ended(session: str) -> Statement[bool]:
    return Statement(statements()["is_session_ended"], {"id": session}, lambda rows: bool(rows[0][0]))


def _tokens(rows: Sequence[Row]) -> list[AccessToken]:
    return [AccessToken._make(row) for row in rows]
