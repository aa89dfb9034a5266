"""The database that a command works on. Nothing said here repeats a password, not even one at the wrong place."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.stop import Stop

if TYPE_CHECKING:
    import argparse

_VARIABLES = ("HOLDFAST_DATABASE_URL", "DATABASE_URL")
_SHAPE = "postgresql://user:password@host:port/dbname, special characters in user and password percent-encoded"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database-url",
        metavar="URL",
        help="address of the database (default: the variable HOLDFAST_DATABASE_URL, then DATABASE_URL)",
    )


def connect(arguments: argparse.Namespace) -> psycopg.Connection[Any]:
    """Open an autocommit connection that prepares nothing, so that any pooler may stand between."""
    source, url = _address(arguments.database_url)
    given = options(source, url)
    try:
        return psycopg.connect(**given, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise Stop(f"cannot connect to the database of {source}: {str(error).strip()}") from error


def address(arguments: argparse.Namespace) -> str:
    """Return the address, if it can be read."""
    source, url = _address(arguments.database_url)
    options(source, url)
    return url


def _address(given: str | None) -> tuple[str, str]:
    sources = {"--database-url": given} | {name: os.environ.get(name) for name in _VARIABLES}
    for source, url in sources.items():
        if url and (count := len(re.findall(r"\S+://", url))) > 1:
            raise Stop(f"{source} names {count} databases: say which one with --database-url", status=2)
        if url:
            return source, url
    raise Stop(f"no database: give --database-url, or set {' or '.join(_VARIABLES)}", status=2)


def options(source: str, url: str) -> dict[str, Any]:
    """Read an address, given by `source`; what cannot be read is refused, and not repeated."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text repeats what it could not read
        given = {}
    if not given or _is_misread(url, given):
        raise Stop(f"cannot read the URL of {source}: it must look like {_SHAPE}", status=2)
    return {"connect_timeout": 10, "application_name": "holdfast", **given}


def _is_misread(url: str, given: dict[str, Any]) -> bool:
    """Tell whether a part of the password was taken for host, port or database name: errors would repeat it."""
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    ports = str(given.get("port") or "0").split(",")
    return authority.count("@") > 1 or "@" in path or not all(port.isdecimal() for port in ports if port)
