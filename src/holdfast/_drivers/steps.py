"""Runs several statements in one transaction: the caller's, or one of their own where the connection has none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._drivers import driver_of, outside_transaction, run, run_sync

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast._drivers import AsyncConnection, SyncConnection
    from holdfast._store.statement import Statement

T = TypeVar("T")


async def run_steps(conn: AsyncConnection, steps: Generator[Statement[Any], Any, T]) -> T:
    """Run the statements that `steps` yields, send it what each returns, and return what it returns."""
    async with _transaction(conn):
        statement = next(steps)
        while True:
            answer = await run(conn, statement)
            try:
                statement = steps.send(answer)
            except StopIteration as ended:
                result: T = ended.value
                return result


def run_steps_sync(conn: SyncConnection, steps: Generator[Statement[Any], Any, T]) -> T:
    """Do the same on a synchronous connection."""
    with _transaction(conn):
        statement = next(steps)
        while True:
            answer = run_sync(conn, statement)
            try:
                statement = steps.send(answer)
            except StopIteration as ended:
                result: T = ended.value
                return result


def _transaction(conn: object) -> Any:
    return nullcontext() if outside_transaction(conn) is None else driver_of(conn).transaction(conn)
