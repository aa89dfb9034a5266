"""What somebody at a terminal does is written down as what others do, in the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli import session
from holdfast.cli.desk import person
from holdfast.drivers import run_sync
from holdfast.ops.person import written

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import psycopg

    from holdfast.store.statement import Statement

T = TypeVar("T")


def audited(  # noqa: PLR0913 - what there is to say of an action
    conn: psycopg.Connection[Any],
    statement: Statement[T],
    action: str,
    target: str,
    *,
    undone: Collection[object] = (),
    jobs: int | None = None,
    detail: Mapping[str, object] | None = None,
) -> T:
    """Act, and write down who did, unless the answer says that nothing was done."""
    by = person()
    with session.bounded(conn):
        answer = run_sync(conn, statement)
        if answer not in undone:
            ids = [int(target)] if jobs == 1 else None
            run_sync(conn, written(by, action, target=target, jobs=jobs, ids=ids, detail=detail))
        return answer
