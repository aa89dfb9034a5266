"""The connections of a process, compared with what its server allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast import _drivers as drivers
from holdfast._logs.log import Log
from holdfast._model.settings import SettingsError
from holdfast._store.inspect import read_server

if TYPE_CHECKING:
    import psycopg

    from holdfast._model.settings import Settings
    from holdfast._store.inspect import ServerInfo

log = Log(__name__)

# One to claim and one to finish; one for the heartbeat; and one that listens.
LINKS, HEARTBEAT, LISTEN = 2, 1, 1

Fits: TypeAlias = Literal["yes", "not now", "never"]


class Headroom(NamedTuple):
    """Whether a process fits, and an explanation for people."""

    fits: Fits
    message: str


def connections_held(settings: Settings) -> int:
    """Return how many connections a worker holds permanently."""
    return LINKS + HEARTBEAT + (LISTEN if settings.listen else 0)


def headroom(server: ServerInfo, settings: Settings) -> Headroom:
    """Compare the budget of a process with the server's limits. The connection that read them is not counted."""
    need, least = settings.max_connections, connections_held(settings)
    if need < least:
        return Headroom("never", f"HOLDFAST_MAX_CONNECTIONS is {need}, and a worker holds {least} all the time")
    limits = [limit for limit in (server.database_limit, server.user_limit) if limit is not None]
    message = (
        f"{need} per process; the server allows {server.max_connections}, {server.reserved} of them reserved, "
        f"{server.used} in use" + (f"; this database or user at most {min(limits)}" if limits else "")
    )
    if need > min([server.max_connections - server.reserved, *limits]):
        return Headroom("never", f"{message}: not one process fits. Lower HOLDFAST_MAX_CONNECTIONS or raise the limit.")
    more = max(0, (server.free + 1) // need)
    if more == 0:
        return Headroom("not now", f"{message}: no room for a process now. Close some, or raise the limit.")
    return Headroom("yes", f"{message}: room for {more} more {'process' if more == 1 else 'processes'}")


async def check_headroom(conn: psycopg.AsyncConnection[Any], *, settings: Settings) -> None:
    """Raise if a process can never fit. Log a warning if it does not fit now: other processes may end soon."""
    server = await drivers.run(conn, read_server())
    if server.backend_pid != conn.info.backend_pid:
        return  # behind a pooler, the connections counted are not ours
    found = headroom(server, settings)
    if found.fits == "never":
        raise SettingsError([f"connections to {conn.info.dbname}: {found.message}"])
    if found.fits == "not now":
        log.warning("connections: %s", found.message, extra={"database": conn.info.dbname})
