"""Create or update the schema `holdfast`. Safe to run at every deployment, from any number of processes at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._cli import session
from holdfast._cli.session import CommandError
from holdfast._store import schema

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--print", action="store_true", help="print the SQL for an empty database; connect to none")
    instead.add_argument("--check", action="store_true", help="change nothing; fail unless the schema is up to date")


def run(arguments: argparse.Namespace) -> None:
    if arguments.print:
        print(schema.script(), end="")
        return
    with session.connect(arguments) as conn, translated(conn):
        if arguments.check:
            schema.check(conn)
            print("The schema is up to date.")
        else:
            _migrate(conn)


def _migrate(conn: psycopg.Connection[Any]) -> None:
    applied = schema.migrate(conn)
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("The schema is up to date.")
    if missing := schema.missing_roles(conn):
        print(
            f"Without the roles {', '.join(missing)}: {conn.info.user} may not create them, and nothing was granted to "
            "them. Have them created, then run `holdfast migrate` again; the owner of the schema can work without."
        )


@contextmanager
def translated(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Translate database errors into messages for the operator."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"{conn.info.user} lacks a privilege: {error.diag.message_primary}. Migrate as the owner of the schema; "
            "the first time as a user who may CREATE in the database. Workers may --check."
        ) from error
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise CommandError(
            f"{error.diag.message_primary}. A long transaction or another migration is in the way; what was not "
            "applied is not begun, and running this again goes on from there."
        ) from error
    except psycopg.Error as error:
        raise CommandError(f"the database refused: {error.diag.message_primary or str(error).strip()}") from error
