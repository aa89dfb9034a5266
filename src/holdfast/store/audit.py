"""What people did: written in the transaction in which it was done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.store.statement import Parameter

_LONGEST_TARGET = 250


class AuditLine(NamedTuple):
    id: int
    at: datetime
    who: str
    role: str
    action: str
    target: str | None
    jobs: int | None
    detail: dict[str, Any]


def record_audit(  # noqa: PLR0913 - what there is to say of an action
    who: str,
    role: str,
    action: str,
    *,
    target: str | None = None,
    jobs: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Statement[int]:
    """Write down who did what; answer with the line's id."""
    params: dict[str, Parameter] = {
        "who": who[:_LONGEST_TARGET].replace("\0", "") or "?",
        "role": role,
        "action": action,
        "target": None if target is None else target[:_LONGEST_TARGET].replace("\0", ""),
        "jobs": jobs,
        "detail": json.dumps(detail or {}, default=str),
    }
    return Statement(statements()["record_audit"], params, lambda rows: int(rows[0][0]))


def add_to_audit(line: int, jobs: int) -> Statement[None]:
    """Say that an action that is written down already was done to so many more."""
    return Statement(statements()["add_to_audit"], {"id": line, "jobs": jobs}, lambda _: None)


def list_audit(*, before: int | None = None, most: int = 50) -> Statement[list[AuditLine]]:
    """Answer with the newest first."""
    return Statement(statements()["list_audit"], {"before": before or 2**63 - 1, "most": most}, _lines)


def _lines(rows: Sequence[Row]) -> list[AuditLine]:
    return [AuditLine._make((*row[:7], json.loads(row[7]))) for row in rows]
