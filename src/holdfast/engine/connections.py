"""The connections of a process to one database, against what its server allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast import drivers
from holdfast.errors import WrongIsolation
from holdfast.logs import Log
from holdfast.settings import SettingsError
from holdfast.store.inspect import read_isolation, read_server

if TYPE_CHECKING:
    import psycopg

    from holdfast.settings import Settings
    from holdfast.store.inspect import Isolation, Server

log = Log(__name__)

# One to claim and one to finish; the heartbeat's; and the one that listens.
LINKS, HEARTBEAT, LISTEN = 2, 1, 1

Fits: TypeAlias = Literal["yes", "not now", "never"]


class Room(NamedTuple):
    """Whether a process fits, and why, for people."""

    fits: Fits
    says: str


def held(settings: Settings) -> int:
    """How many connections a worker holds all the time."""
    return LINKS + HEARTBEAT + (LISTEN if settings.listen else 0)


def room(server: Server, settings: Settings) -> Room:
    """Compare the budget of a process with the server, of which one connection asked: that one is not counted."""
    need, least = settings.max_connections, held(settings)
    if need < least:
        return Room("never", f"HOLDFAST_MAX_CONNECTIONS is {need}, and a worker holds {least} all the time")
    limits = [limit for limit in (server.database_limit, server.user_limit) if limit is not None]
    said = (
        f"{need} per process; the server allows {server.max_connections}, {server.reserved} of them reserved, "
        f"{server.used} in use" + (f"; this database or user at most {min(limits)}" if limits else "")
    )
    if need > min([server.max_connections - server.reserved, *limits]):
        return Room("never", f"{said}: not one process fits. Lower HOLDFAST_MAX_CONNECTIONS or raise the limit.")
    more = max(0, (server.free + 1) // need)
    if more == 0:
        return Room("not now", f"{said}: no room for a process now. Close some, or raise the limit.")
    return Room("yes", f"{said}: room for {more} more {'process' if more == 1 else 'processes'}")


def too_strict(found: Isolation) -> str | None:
    """Say what to do where a finish would not see what a claim parks meanwhile; None where it would."""
    if found.level == "read committed":
        return None
    return (
        f"a transaction is {found.level.upper()} by default, and a worker needs READ COMMITTED: "
        f"ALTER ROLE {found.user} SET default_transaction_isolation = 'read committed'"
    )


async def check_isolation(conn: psycopg.AsyncConnection[Any]) -> None:
    """Refuse to start where transactions are stricter by default. To set it here would not reach through a pooler."""
    said = too_strict(await drivers.run(conn, read_isolation()))
    if said is not None:
        raise WrongIsolation(f"{conn.info.dbname}: {said}")


async def check_room(conn: psycopg.AsyncConnection[Any], *, settings: Settings) -> None:
    """Refuse to start where a process can never fit; warn where it does not just now: others may be about to end."""
    server = await drivers.run(conn, read_server())
    if server.backend_pid != conn.info.backend_pid:
        return  # behind a pooler, whose connections are not ours to count
    found = room(server, settings)
    if found.fits == "never":
        raise SettingsError([f"connections to {conn.info.dbname}: {found.says}"])
    if found.fits == "not now":
        log.warning("connections: %s", found.says, extra={"database": conn.info.dbname})
