"""A command's database session: one database, limited in time, audited, with errors translated for the operator."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import socket
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast._distribution import missing
from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.call import suggestion
from holdfast._model.databases import Databases, databases_at, split_name
from holdfast._model.scheme import scheme_problem
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._store import schema
from holdfast._store.inspect import limit_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence

    from holdfast._ops.service import Service
    from holdfast._store.statement import Statement


T = TypeVar("T")

# The longest time of a statement, in seconds.
SECONDS = 10.0
# The longest time for one of several databases to accept a connection, in seconds.
CONNECT_SECONDS = 5


class CommandError(Exception):
    """A message for the operator at the terminal, and the exit status."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class ConnectError(CommandError):
    """A connection could not be opened. `why`: the reason alone."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"cannot connect to the database of {source}: {why}. Correct the address, or start the server")
        self.why = why


class Database(NamedTuple):
    name: str
    """Its name in the list; empty for a single address without a name."""
    source: str
    """The option or variable that gave the address, for messages."""
    url: str
    draining: bool = False


@contextmanager
def opened(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to this database, whose schema matches this code."""
    with connect(database) as conn, translated(conn):
        schema.check(conn)
        yield conn


@asynccontextmanager
async def service(database: Database, *, seconds: float | None = None) -> AsyncGenerator[Service, None]:
    """Yield the operations service of this database on a connection of its own. A refusal becomes a CommandError.

    `seconds`: how long the block may take, then its connection is severed. Default: no limit.
    """
    from holdfast._ops.pool import SingleConnection
    from holdfast._ops.service import Service

    async with opened_async(database, seconds=seconds) as conn:
        try:
            yield Service(SingleConnection(conn, timedelta(seconds=SECONDS)))
        except RequestRefused as refused:
            raise CommandError(refused.message) from refused


@asynccontextmanager
async def opened_async(
    database: Database, *, seconds: float | None = None
) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
    """Yield an asynchronous connection. See `opened` and `service`."""
    from holdfast._engine.link import severed_after

    limits = {} if seconds is None else {"connect_timeout": CONNECT_SECONDS}
    given = options(database.source, database.url, **limits)
    with _connecting(database.source):
        conn = await psycopg.AsyncConnection.connect(**given, autocommit=True, prepare_threshold=None)
    async with conn:
        with translated(conn), nullcontext() if seconds is None else severed_after(conn, seconds):
            await schema.check_async(conn)
            yield conn


def not_found(refused: RequestRefused, name: str, known: Sequence[str]) -> CommandError:
    """Return the refusal, and if nothing has this name, the name that was meant."""
    if refused.code != "not_found":
        return CommandError(refused.message)
    message = refused.message.removesuffix(".")
    return CommandError(f"{message[0].lower()}{message[1:]}: {meant(name, known)}")


def meant(name: str, known: Sequence[str]) -> str:
    """Return the known name that is close to this one, as a question, or else the known names."""
    return suggestion(name, known) or f"there are {', '.join(known[:20]) or 'none'}"


def person() -> Person:
    """Return the operating system's user. With the database's address they may do all that its login allows."""
    try:
        import pwd
    except ImportError:  # Windows
        name = getpass.getuser()
        return Person(f"cli:{name}", Role.DEVELOPER, f"user:{name}", socket.gethostname())
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in some containers
        name = str(uid)
    return Person(f"cli:{name}", Role.DEVELOPER, f"uid:{uid}", socket.gethostname())


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on a loop that psycopg can use, as the default loop of Windows is not."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main)


def require(extra: str, *libraries: str) -> None:
    """Raise CommandError with the extra to install if a library is missing."""
    absent = [library for library in libraries if find_spec(library) is None]
    if absent:
        raise CommandError(missing("this command", extra, *absent))


@contextmanager
def bounded(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the block in one transaction whose statements each take at most ten seconds."""
    with conn.transaction():
        run_sync(conn, limit_time(SECONDS))
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


_FILE = "HOLDFAST_DATABASES_FILE"
_VARIABLES = ("HOLDFAST_DATABASE_URL", "DATABASE_URL")
_SHAPE = "postgresql://user:password@host:port/dbname, special characters in user and password percent-encoded"


def configure(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--database-url",
        metavar="URL",
        help="address of the database (default: the variable HOLDFAST_DATABASE_URL, then DATABASE_URL)",
    )
    which.add_argument("--database", metavar="NAME", help="one of several databases (default: all, or the only one)")


def connect(database: Database) -> psycopg.Connection[Any]:
    """Open an autocommit connection without prepared statements, so that it works through any pooler."""
    with _connecting(database.source):
        return psycopg.connect(**options(database.source, database.url), autocommit=True, prepare_threshold=None)


@contextmanager
def _connecting(source: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        why = " ".join(str(error).partition("Is the server running")[0].split())
        raise ConnectError(source, why) from error


def chosen(arguments: argparse.Namespace) -> Database:
    """Return the only database that the options and the environment name."""
    return only(listed(arguments))


def only(databases: Sequence[Database]) -> Database:
    if len(databases) > 1:
        names = ", ".join(database.name for database in databases)
        source = databases[0].source.partition(",")[0]
        raise CommandError(f"{source} names {len(databases)} databases: choose one with --database: {names}", status=2)
    return databases[0]


def listed(arguments: argparse.Namespace) -> list[Database]:
    """Return every database that the options and the environment name. `--database` chooses one of them."""
    given, name = arguments.database_url, getattr(arguments, "database", None)
    if given and name:
        raise CommandError("--database and --database-url exclude each other: give one of them", status=2)
    if given:
        if (count := len(re.findall(r"\S+://", given))) > 1:
            raise CommandError(f"--database-url names {count} databases: give one address", status=2)
        return [Database("", "--database-url", given)]
    found = of_environment()
    return found if name is None else [named(name, found)]


def of_environment(otherwise: str = "give --database-url") -> list[Database]:
    """Return the databases that the environment names. `otherwise`: what else an error advises."""
    if path := os.environ.get(_FILE):
        return of_databases(_FILE, Databases.read(path))
    for source in _VARIABLES:
        if text := os.environ.get(source, "").strip():
            urls = text.split() if "://" in text else [text]
            if len(urls) > 1:
                return of_databases(source, databases_at(urls, source))
            name, url = split_name(text)
            return [Database(name or "", source, url)]
    raise CommandError(f"no database: {otherwise}, or set {' or '.join(_VARIABLES)}", status=2)


def of_databases(source: str, databases: Databases) -> list[Database]:
    """Return the databases that `source` names, in their order."""
    several = len(databases) > 1
    return [
        Database(name, f"{source}, {name}" if several else source, url, name in databases.draining)
        for name, url in databases.items()
    ]


def named(name: str, databases: Sequence[Database]) -> Database:
    for database in databases:
        if database.name == name:
            return database
    known = [database.name for database in databases if database.name]
    if not known:
        raise CommandError(f"--database: {databases[0].source} gives the only database no name", status=2)
    raise CommandError(f"there is no database {name}: {meant(name, known)}", status=2)


def options(source: str, url: str, **defaults: Any) -> dict[str, Any]:
    """Parse an address given by `source`. An invalid one is refused without repeating it.

    `defaults`: options that the address may override.
    """
    if problem := scheme_problem(url):
        raise CommandError(f"the URL of {source} {problem}", status=2)
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text repeats the address
        given = {}
    if not given or _is_misread(url, given):
        raise CommandError(f"cannot read the URL of {source}: it must look like {_SHAPE}", status=2)
    return {"connect_timeout": 10, "application_name": "holdfast", **defaults, **given, "client_encoding": "UTF8"}


def _is_misread(url: str, given: dict[str, Any]) -> bool:
    """Return whether part of the password was parsed as host, port or database: errors would reveal it."""
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    ports = str(given.get("port") or "0").split(",")
    return authority.count("@") > 1 or "@" in path or not all(port.isdecimal() for port in ports if port)
