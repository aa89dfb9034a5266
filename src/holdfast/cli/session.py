"""A command's talk with the database: bounded in time, and in words of ours where it is refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from holdfast.cli import database
from holdfast.cli.stop import Stop
from holdfast.drivers import run_sync
from holdfast.failure import Failure
from holdfast.store import schema
from holdfast.store.inspect import limit_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast.store.statement import Statement

T = TypeVar("T")

# No question of a person may take longer.
SECONDS = 10.0


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to a database whose schema is the one this code knows."""
    with database.connect(arguments) as conn, told(conn):
        schema.check(conn)
        yield conn


@contextmanager
def bounded(conn: psycopg.Connection[Any], *, seconds: float = SECONDS) -> Iterator[None]:
    """Make one transaction of the block, in which no statement may take longer."""
    with conn.transaction():
        run_sync(conn, limit_time(seconds))
        yield


def ask(conn: psycopg.Connection[Any], statement: Statement[T]) -> T:
    """Run one statement in a bounded transaction of its own."""
    with bounded(conn):
        return run_sync(conn, statement)


@contextmanager
def told(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Say what the database's refusal means here."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise Stop(f"the answer took longer than {SECONDS:g} s and was given up: ask for less, or by id") from error
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise Stop("somebody else is changing the same job: try again") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise Stop(
            f"{conn.info.user} may not: {Failure.of(error).text}. Looking needs the role holdfast_viewer, acting "
            "holdfast_operator, or the owner of the schema."
        ) from error
    except psycopg.OperationalError as error:
        raise Stop(f"the connection to the database was lost: {Failure.of(error).text}. Try again.") from error
    except psycopg.Error as error:
        raise Stop(f"the database refused: {Failure.of(error).text}") from error
