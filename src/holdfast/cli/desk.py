"""What a command needs to act as the operations API does: its desk, and the name of who acts."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.cli import database, session
from holdfast.cli.stop import Stop
from holdfast.ops.person import Person
from holdfast.ops.refusal import Refused
from holdfast.ops.role import Role

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator

    from holdfast.ops.desk import Desk

# A connection whose other end is gone without a word is given up within half a minute.
_WATCHED: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


@asynccontextmanager
async def opened(arguments: argparse.Namespace) -> AsyncGenerator[Desk, None]:
    """Yield a desk with one connection, to a database whose schema is known; what it refuses ends the command."""
    require("ops", "psycopg_pool")
    from holdfast.ops.desk import Desk

    with session.opened(arguments):  # says more exactly than a desk what is wrong with an address
        pass
    given = conninfo_to_dict(database.address(arguments))
    try:
        async with Desk(make_conninfo("", **(_WATCHED | given)), connections=1) as desk:
            yield desk
    except Refused as refused:
        raise Stop(refused.message) from refused


def person() -> Person:
    """Say who is at the terminal. A person with the address of the database may do all that its login allows."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in some containers
        name = str(uid)
    return Person(f"cli:{name}", Role.DEVELOPER, f"uid:{uid}", socket.gethostname())


def require(extra: str, *modules: str) -> None:
    """Refuse in one line, with what to install, where something is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise Stop(f"{' and '.join(missing)} is not installed: pip install 'holdfast[{extra}]'")
