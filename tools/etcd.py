"""A throwaway etcd of one node."""

from __future__ import annotations

import json
import secrets
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from tools.broker import Broker, provide
from tools.ports import free_port

if TYPE_CHECKING:
    import socket
    from pathlib import Path


class Etcd(Broker):
    def __init__(self) -> None:
        self._program = provide("etcd", "etcd-server etcd-client", "install Debian's etcd-server")
        self._name = f"holdfast-{secrets.token_hex(8)}"
        self._peer_port = free_port()
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        where: dict[str, str | Path] = {
            "--name": self._name,
            "--data-dir": self.folder / "data",
            "--listen-client-urls": self.url,
            "--advertise-client-urls": self.url,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"{self._name}={peer}",
        }
        return [self._program, *(part for option in where.items() for part in option)]

    def is_ours(self, peer: socket.socket) -> bool:  # noqa: ARG002 - it is asked on a connection of its own
        asked = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            asked.request("POST", "/v3/cluster/member/list", "{}")
            members = json.loads(asked.getresponse().read()).get("members", [])
        except (HTTPException, ValueError) as error:
            raise ConnectionError(f"no answer yet: {error}") from error
        finally:
            asked.close()
        if members and not members[0].get("name"):
            raise ConnectionError("it has not joined its own cluster yet")
        return [member["name"] for member in members] == [self._name]
