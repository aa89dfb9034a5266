"""A command's database session: limited in time, recorded in the audit, with errors translated for the operator."""

from __future__ import annotations

import difflib
import os
import pwd
import re
import socket
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast._distribution import missing
from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._store import schema
from holdfast._store.inspect import limit_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from holdfast._ops.service import Service
    from holdfast._store.statement import Statement


T = TypeVar("T")

# The longest time of a statement, in seconds.
SECONDS = 10.0


class CommandError(Exception):
    """A message for the operator at the terminal, and the exit status."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to a database whose schema matches this code."""
    with connect(arguments) as conn, translated(conn):
        schema.check(conn)
        yield conn


@asynccontextmanager
async def service(arguments: argparse.Namespace) -> AsyncGenerator[Service, None]:
    """Yield the operations service on a connection of its own, after a check of the schema.

    A refusal becomes a CommandError.
    """
    from holdfast._ops.pool import SingleConnection
    from holdfast._ops.service import Service

    async with opened_async(arguments) as conn:
        try:
            yield Service(SingleConnection(conn, timedelta(seconds=SECONDS)))
        except RequestRefused as refused:
            raise CommandError(refused.message) from refused


@asynccontextmanager
async def opened_async(arguments: argparse.Namespace) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
    """Yield an asynchronous connection. See `opened`."""
    source, url = _address(arguments.database_url)
    with _connecting(source):
        conn = await psycopg.AsyncConnection.connect(**options(source, url), autocommit=True, prepare_threshold=None)
    async with conn:
        with translated(conn):
            await schema.check_async(conn)
            yield conn


def not_found(refused: RequestRefused, name: str, known: Sequence[str]) -> CommandError:
    """Return the refusal, and if nothing has this name, the name that was meant."""
    if refused.code != "not_found":
        return CommandError(refused.message)
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
    said = refused.message.removesuffix(".")
    return CommandError(f"{said[0].lower()}{said[1:]}: {meant}")


def person() -> Person:
    """Return the operating system's user. With the database's address they may do all that its login allows."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in some containers
        name = str(uid)
    return Person(f"cli:{name}", Role.DEVELOPER, f"uid:{uid}", socket.gethostname())


def require(extra: str, *libraries: str) -> None:
    """Raise CommandError with the extra to install if a library is missing."""
    absent = [library for library in libraries if find_spec(library) is None]
    if absent:
        raise CommandError(missing("this command", extra, *absent))


@contextmanager
def bounded(conn: psycopg.Connection[Any], *, seconds: float = SECONDS) -> Iterator[None]:
    """Run the block in one transaction whose statements each take at most `seconds` (default 10)."""
    with conn.transaction():
        run_sync(conn, limit_time(seconds))
        yield


def run(conn: psycopg.Connection[Any], statement: Statement[T]) -> T:
    """Run one statement in its own bounded transaction."""
    with bounded(conn):
        return run_sync(conn, statement)


@contextmanager
def translated(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], *, seconds: float = SECONDS
) -> Iterator[None]:
    """Translate database errors into messages for the operator. `seconds`: the longest time of a statement."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise CommandError(
            f"the answer took longer than {seconds:g} s and was given up: ask for less, or by id"
        ) from error
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise CommandError("another session is changing the same job: try again") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"{conn.info.user} may not: {Failure.of(error).text}. Looking needs the role holdfast_viewer, acting "
            "holdfast_operator, or the owner of the schema."
        ) from error
    except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported) as error:
        raise CommandError("This server only reads, as a standby does: ask the primary.") from error
    except psycopg.OperationalError as error:
        raise CommandError(f"the connection to the database was lost: {Failure.of(error).text}. Try again.") from error
    except psycopg.Error as error:
        raise CommandError(f"the database refused: {Failure.of(error).text}") from error


_VARIABLES = ("HOLDFAST_DATABASE_URL", "DATABASE_URL")
_SHAPE = "postgresql://user:password@host:port/dbname, special characters in user and password percent-encoded"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database-url",
        metavar="URL",
        help="address of the database (default: the variable HOLDFAST_DATABASE_URL, then DATABASE_URL)",
    )


def connect(arguments: argparse.Namespace) -> psycopg.Connection[Any]:
    """Open an autocommit connection without prepared statements, so that it works through any pooler."""
    source, url = _address(arguments.database_url)
    with _connecting(source):
        return psycopg.connect(**options(source, url), autocommit=True, prepare_threshold=None)


@contextmanager
def _connecting(source: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        why = " ".join(str(error).partition("Is the server running")[0].split())
        raise CommandError(
            f"cannot connect to the database of {source}: {why}. Correct the address, or start the server"
        ) from error


def address(arguments: argparse.Namespace) -> str:
    """Return the database's address if it is valid."""
    source, url = _address(arguments.database_url)
    options(source, url)
    return url


def _address(given: str | None) -> tuple[str, str]:
    sources = {"--database-url": given} | {name: os.environ.get(name) for name in _VARIABLES}
    for source, url in sources.items():
        if url and (count := len(re.findall(r"\S+://", url))) > 1:
            raise CommandError(f"{source} names {count} databases: say which one with --database-url", status=2)
        if url:
            return source, url
    raise CommandError(f"no database: give --database-url, or set {' or '.join(_VARIABLES)}", status=2)


def options(source: str, url: str) -> dict[str, Any]:
    """Parse an address given by `source`. An invalid one is refused without repeating it."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text repeats the address
        given = {}
    if not given or _is_misread(url, given):
        raise CommandError(f"cannot read the URL of {source}: it must look like {_SHAPE}", status=2)
    return {"connect_timeout": 10, "application_name": "holdfast", **given}


def _is_misread(url: str, given: dict[str, Any]) -> bool:
    """Return whether part of the password was parsed as host, port or database: errors would reveal it."""
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    ports = str(given.get("port") or "0").split(",")
    return authority.count("@") > 1 or "@" in path or not all(port.isdecimal() for port in ports if port)
