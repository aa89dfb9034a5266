"""What people did: written in the transaction in which it was done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.store.statement import Row, Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast.store.statement import Parameter

_LONGEST_TARGET = 250


class AuditLine(NamedTuple):
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


def record_audit(  # noqa: PLR0913 - what there is to say of an action
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
    """Write down who did what, on which jobs; answer with the line's id."""
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


def list_audit(*, before: int | None = None, most: int = 50) -> Statement[list[AuditLine]]:
    """Answer with the newest first."""
    return Statement(statements()["list_audit"], {"before": before or 2**63 - 1, "most": most}, _lines)


def _lines(rows: Sequence[Row]) -> list[AuditLine]:
    return [AuditLine._make((*row[:10], json.loads(row[10]))) for row in rows]
