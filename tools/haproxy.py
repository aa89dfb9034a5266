"""A throwaway HAProxy before the members of a Patroni cluster: connections go to the present primary."""

from __future__ import annotations

import secrets
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple

from tools.broker import Broker, provide
from tools.ports import free_port

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

_CONFIG = """\
global
    maxconn 2000

defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 1s

listen primary
    bind 127.0.0.1:{port}
    option httpchk GET /primary
    http-check expect status 200
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
{servers}

frontend name
    mode http
    timeout client 5s
    bind 127.0.0.1:{name_port}
    http-request return status 200 content-type text/plain string {name}
"""


class Backend(NamedTuple):
    name: str
    port: int
    check_port: int
    """Where its health is asked for."""


class HaProxy(Broker):
    def __init__(self, backends: Sequence[Backend]) -> None:
        self._program = provide("haproxy", "haproxy", "install Debian's haproxy")
        self._backends = backends
        self._name = f"holdfast-{secrets.token_hex(8)}"
        self._name_port = free_port()
        super().__init__()

    @property
    def url(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        servers = "\n".join(
            f"    server {one.name} 127.0.0.1:{one.port} check port {one.check_port}" for one in self._backends
        )
        path = self.folder / "haproxy.cfg"
        path.write_text(
            _CONFIG.format(port=self.port, name_port=self._name_port, servers=servers, name=self._name), "utf-8"
        )
        return [self._program, "-db", "-f", path]

    def is_ours(self, peer: socket.socket) -> bool:  # noqa: ARG002 - it says its name on another port
        asked = HTTPConnection("127.0.0.1", self._name_port, timeout=5)
        try:
            asked.request("GET", "/")
            return asked.getresponse().read().decode() == self._name
        except HTTPException as error:
            raise ConnectionError(f"no answer yet: {error}") from error
        finally:
            asked.close()
