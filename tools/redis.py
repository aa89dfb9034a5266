"""A throwaway Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.broker import Broker, provide

if TYPE_CHECKING:
    import socket
    from pathlib import Path


class RedisServer(Broker):
    def __init__(self) -> None:
        self._program = provide("redis-server", "redis-server", "install Redis")
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        return [self._program, *where, "--save", "", "--appendonly", "no", "--daemonize", "no"]

    def is_ours(self, peer: socket.socket) -> bool:
        peer.sendall(b"INFO server\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            if not (part := peer.recv(65536)):
                raise ConnectionError("closed before it answered")
            answer += part
        return f"process_id:{self.pid}\r\n".encode() in answer
