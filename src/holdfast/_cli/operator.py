"""The service and the identity with which a command acts, as the operations API does."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._cli import session
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._ops.caller import Person, RequestRefused, Role, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Collection, Mapping

    import psycopg

    from holdfast._ops.service import Service
    from holdfast._store.statement import Statement


# Detect a silently lost connection within half a minute.
_WATCHED: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


@asynccontextmanager
async def opened(arguments: argparse.Namespace) -> AsyncGenerator[Service, None]:
    """Yield a service with one connection, after a check of the schema. A refusal becomes a CommandError."""
    require("ops", "psycopg_pool")
    from holdfast._ops.service import Service

    with session.opened(arguments):  # reports a wrong address more precisely than the service
        pass
    given = conninfo_to_dict(session.address(arguments))
    try:
        async with Service(make_conninfo("", **(_WATCHED | given)), connections=1) as service:
            yield service
    except RequestRefused as refused:
        raise CommandError(refused.message) from refused


def person() -> Person:
    """Return the operating system's user. With the database's address they may do all that its login allows."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in some containers
        name = str(uid)
    return Person(f"cli:{name}", Role.DEVELOPER, f"uid:{uid}", socket.gethostname())


def require(extra: str, *modules: str) -> None:
    """Raise CommandError with the extra to install if a module is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise CommandError(f"{' and '.join(missing)} is not installed: pip install 'holdfast[{extra}]'")


T = TypeVar("T")


def audited(  # noqa: PLR0913 - the fields of an audit entry
    conn: psycopg.Connection[Any],
    statement: Statement[T],
    action: str,
    target: str,
    *,
    undone: Collection[object] = (),
    jobs: int | None = None,
    detail: Mapping[str, object] | None = None,
) -> T:
    """Run the statement and record it in the audit, unless its answer is in `undone`."""
    by = person()
    with session.bounded(conn):
        answer = run_sync(conn, statement)
        if answer not in undone:
            ids = [int(target)] if jobs == 1 else None
            run_sync(conn, written(by, action, target=target, jobs=jobs, ids=ids, detail=detail))
        return answer
