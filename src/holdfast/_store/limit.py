"""Limits: stored for the whole database, changed while jobs run, and explained to operators."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.limit import rate_text
from holdfast._store.statement import Statement, many, one, one_or_none, statement, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast._model.limit import Limit


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit as it is in force, and what it holds back."""

    name: str
    parameters: list[str] | None
    """Whose values make the keys, each with the limit for itself; None: there is one key."""
    concurrency: int | None
    starts: int | None
    period_ms: int | None
    burst: int
    declared: str | None
    """By the code: JSON text; None: by no code."""
    set_by: str | None
    """The operator who set these values; None: they are as declared."""
    set_at: datetime | None
    running: int
    """Jobs that run under it. At most 10,000 are counted."""
    waiting: int
    """Jobs that wait for it. At most 10,000 are counted."""
    oldest_seconds: float | None
    """For how long the first of them has been due."""

    @property
    def rate(self) -> str | None:
        return None if self.starts is None or self.period_ms is None else rate_text(self.starts, self.period_ms)


class LimitWait(NamedTuple):
    """The limit that a job waits for."""

    name: str
    value: str | None
    """Of its key; None: all jobs share it."""
    parameters: list[str] | None
    concurrency: int | None
    starts: int | None
    period_ms: int | None
    running: int
    ahead: int

    @property
    def text(self) -> str:
        """The wait in a sentence, without a full stop."""
        key = "" if self.value is None else f" for {', '.join(self.parameters or ['the key'])} {self.value}"
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.running} of {self.concurrency} of limit {self.name}{key} are taken")
        if self.starts is not None and self.period_ms is not None:
            parts.append(f"at most {rate_text(self.starts, self.period_ms)} of limit {self.name}{key} start")
        return f"{', and '.join(parts) or f'limit {self.name}{key}'}, and {self.ahead} wait before it"


class Mended(NamedTuple):
    """The key after which to continue, None if it was the last, and how many keys were mended."""

    until: str | None
    mended: int


def declare_limits(limits: Mapping[str, Limit]) -> Statement[list[str]]:
    """Store what the code declares; return the names whose values changed."""
    given: dict[str, dict[str, object]] = {
        name: {**limit.rule, "parameters": list(limit.names) if limit.names else None} for name, limit in limits.items()
    }
    return statement("declare_limits", lambda rows: [row[0] for row in rows], limits=json.dumps(given))


def set_limit(  # noqa: PLR0913 - one keyword per column
    name: str, *, concurrency: int | None, starts: int | None, period_ms: int | None, burst: int, who: str
) -> Statement[bool]:
    """Set these values until they are reset; return False when there is no such limit. Then mend it."""
    return statement(
        "set_limit",
        bool,
        name=name,
        concurrency=concurrency,
        starts=starts,
        period_ms=period_ms,
        burst=burst,
        who=who,
    )


def reset_limit(name: str) -> Statement[bool]:
    """Go back to what the code declares; return False when no code declares this limit. Then mend it."""
    return statement("reset_limit", bool, name=name)


def mend_limits(*, since: str | None = None, name: str | None = None, limit: int) -> Statement[Mended]:
    """Promote what waits although its key has room, in at most `limit` keys behind `since`. `name`: of one limit."""
    return statement("mend_limits", one(Mended), since=since, name=name, limit=limit)


def delete_limit_rates(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_limit_rates", value, limit=limit)


def read_limit_wait(job_id: int) -> Statement[LimitWait | None]:
    return statement("read_limit_wait", one_or_none(LimitWait), id=job_id)


def list_limits(limit: int = 1_000) -> Statement[list[LimitLine]]:
    return statement("list_limits", many(LimitLine), limit=limit)
