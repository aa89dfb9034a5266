"""Create or update the schema `holdfast`. Safe to run at every deployment, from any number of processes at once.

With several databases, all are migrated one after another. Where one fails, the others are migrated, and the exit
status is 1. With --skip-unreachable, one that cannot be connected to is a warning while another one can be.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._cli import session
from holdfast._cli.session import CommandError, ConnectError
from holdfast._model.errors import HoldfastError
from holdfast._store import schema

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast._cli.session import Database


def configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--print", action="store_true", help="print the SQL for an empty database; connect to none")
    instead.add_argument("--check", action="store_true", help="change nothing; fail unless the schema is up to date")
    parser.add_argument(
        "--skip-unreachable",
        action="store_true",
        help="only warn about one of several databases that cannot be connected to; fail if none can be",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.print:
        print(schema.script(), end="")
        return 0
    databases = session.listed(arguments)
    if len(databases) == 1:
        _look(databases[0], check=arguments.check)
        return 0
    failed, reached = False, False
    for database in databases:
        try:
            _look(database, f"{database.name}: ", check=arguments.check)
            reached = True
        except (CommandError, HoldfastError) as error:
            skipped = arguments.skip_unreachable and isinstance(error, ConnectError)
            failed |= not skipped
            sys.stdout.flush()
            reason = f"skipped: {error}" if skipped else str(error)
            print(f"holdfast migrate: {database.name}: {reason}", file=sys.stderr)
    return 0 if reached and not failed else 1


def _look(database: Database, prefix: str = "", *, check: bool) -> None:
    """Migrate a database, or only check its schema. `prefix`: the beginning of every line."""
    with session.connect(database) as conn, translated(conn):
        if check:
            schema.check(conn)
            print(f"{prefix}The schema is up to date.")
        else:
            _migrate(conn, prefix)


def _migrate(conn: psycopg.Connection[Any], prefix: str) -> None:
    applied = schema.migrate(conn)
    for name in applied:
        print(f"{prefix}applied {name}")
    if not applied:
        print(f"{prefix}The schema is up to date.")
    if missing := schema.missing_roles(conn):
        print(
            f"{prefix}Without the roles {', '.join(missing)}: {conn.info.user} may not create them, and nothing was "
            "granted to them. Have them created, then run `holdfast migrate` again; the owner of the schema can work "
            "without."
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
        reason = error.diag.message_primary or str(error).strip()
        hint = f". {error.diag.message_hint}" if error.diag.message_hint else ""
        raise CommandError(f"the database refused: {reason}{hint}") from error
