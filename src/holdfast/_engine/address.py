"""The URL of a database: its hosts, the timeouts of a connection, and how to connect."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._engine.keeper import in_thread

# The shortest time in seconds that the driver waits for one host.
SHORTEST_CONNECT = 2
# TCP detects a peer that is gone without closing the connection. A URL may contain other values.
CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "holdfast",
}


async def connect(
    url: str, *, seconds: float | None = None, autocommit: bool = True, prepare_threshold: int | None = 5
) -> psycopg.AsyncConnection[Any]:
    """Connect without the event loop's thread pool: handlers may occupy all of its threads.

    `seconds`: for all hosts of the URL together; a host without an answer leaves time for the others.
    """
    conninfo = make_conninfo(**watched(await resolved(url), seconds))
    return await psycopg.AsyncConnection.connect(conninfo, autocommit=autocommit, prepare_threshold=prepare_threshold)


def watched(params: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """Return the connection parameters with our timeouts where there are none. `seconds`: for all hosts together."""
    params = CONNECT | params | {"client_encoding": "UTF8"}
    if seconds is not None:
        hosts = 1 + str(params.get("hostaddr") or params.get("host") or "").count(",")
        share = max(SHORTEST_CONNECT, int(seconds / hosts))
        given = int(params["connect_timeout"])
        params["connect_timeout"] = min(given, share) if given > 0 else share
    return params


async def resolved(url: str) -> dict[str, Any]:
    """Return the connection parameters, with an address for each host name.

    Names are resolved in a thread of their own: the driver would use the event loop's, and handlers may occupy all of
    those with `asyncio.to_thread`. A name appears once for each of its addresses, in the order in which the driver
    would try them. Names are kept beside their addresses, because certificates and password files are checked by name.
    """
    params: dict[str, Any] = conninfo_to_dict(url)
    hosts = _given(params, "host").split(",")
    if _given(params, "hostaddr") or not any(map(_is_name, hosts)):
        return params
    ports = [port or "5432" for port in _given(params, "port").split(",")]
    if len(ports) == 1:
        ports *= len(hosts)
    if len(ports) != len(hosts):
        return params  # the driver reports the error
    found = await in_thread(lambda: _look_up(list(zip(hosts, ports, strict=True))), name="names")
    named, addresses, numbers = zip(*found, strict=True)
    return params | {"host": ",".join(named), "hostaddr": ",".join(addresses), "port": ",".join(numbers)}


def _look_up(places: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    why: psycopg.OperationalError | None = None
    for host, port in places:
        if not _is_name(host):
            found.append((host, host if _is_address(host) else "", port))
            continue
        try:
            answers = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP, type=socket.SOCK_STREAM)
        except OSError as exc:
            why = psycopg.OperationalError(f"failed to resolve host {host!r}: {exc}")
        else:
            found += [(host, str(answer[4][0]), port) for answer in answers]
    if not found and why is not None:
        raise why
    return found


def _given(params: dict[str, Any], name: str) -> str:
    return str(params[name]) if name in params else os.environ.get(f"PG{name.upper()}", "")


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@")) and not _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def database_of(url: str) -> str:
    """Return only the database name: the URL may contain a password."""
    try:
        return str(conninfo_to_dict(url).get("dbname") or "")
    except psycopg.ProgrammingError:
        return ""
