"""Resolves the host names of a database in a separate thread.

The driver would use the event loop's threads, and handlers may occupy all of them with `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast._engine.thread import in_thread

PORT = "5432"


async def resolved(url: str) -> dict[str, Any]:
    """Return the connection parameters, with an address for each host name.

    A name appears once for each of its addresses, in the order in which the driver would try them. Names are kept
    beside their addresses, because certificates and password files are checked by name.
    """
    params: dict[str, Any] = conninfo_to_dict(url)
    hosts = _given(params, "host").split(",")
    if _given(params, "hostaddr") or not any(map(_is_name, hosts)):
        return params
    ports = [port or PORT for port in _given(params, "port").split(",")]
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
