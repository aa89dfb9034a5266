"""What was answered to requests that carried an Idempotency-Key."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.store.statement import Statement, statements


class Answered(NamedTuple):
    request: str
    """A digest of what was asked."""
    answer: str | None
    """None: under way, or its end is not known."""


def forget_answered() -> Statement[None]:
    """Forget what is older than a day."""
    return Statement(statements()["forget_answered"], {}, lambda _: None)


def begin_answered(who: str, key: str, request: str) -> Statement[bool]:
    """Write down that somebody asks this under this key; False when they have used it before."""
    return Statement(statements()["begin_answered"], {"who": who, "key": key, "request": request}, bool)


def find_answered(who: str, key: str) -> Statement[Answered | None]:
    return Statement(
        statements()["find_answered"], {"who": who, "key": key}, lambda rows: Answered._make(rows[0]) if rows else None
    )


def keep_answered(who: str, key: str, answer: str) -> Statement[None]:
    return Statement(statements()["keep_answered"], {"who": who, "key": key, "answer": answer}, lambda _: None)


def drop_answered(who: str, key: str) -> Statement[None]:
    """Let the key be used anew: nothing was done."""
    return Statement(statements()["drop_answered"], {"who": who, "key": key}, lambda _: None)
