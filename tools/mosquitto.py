"""A throwaway Mosquitto that keeps nothing on disk."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tools.broker import Broker, provide

if TYPE_CHECKING:
    import socket
    from pathlib import Path

# The largest packet it takes, smaller than usual so that a test can pass it.
LARGEST = 1_000_000
# Nobody may publish here.
FORBIDDEN = "forbidden"


class MosquittoServer(Broker):
    def __init__(self) -> None:
        self._program = provide("mosquitto", "mosquitto", "install Mosquitto")
        self._name = secrets.token_hex(8)
        super().__init__()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        rights = self.folder / "rights"
        rights.write_text(f"topic readwrite #\ntopic deny {FORBIDDEN}\n")
        rights.chmod(0o644)
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\n"
            "allow_anonymous true\n"
            "persistence false\n"
            f"acl_file {rights}\n"
            f"max_packet_size {LARGEST}\n"
            "max_queued_messages 100000\n"
            "user root\n"
            # An id that the server gives begins so: how it is known to be ours.
            f"auto_id_prefix {self._name}\n"
        )
        return [self._program, "-c", config]

    def is_ours(self, peer: socket.socket) -> bool:
        # CONNECT of MQTT 5 without a client id; the answer names the one it was given.
        peer.sendall(bytes([0x10, 13, 0, 4, *b"MQTT", 5, 2, 0, 60, 0, 0, 0]))
        answer = b""
        while len(answer) < 2 or len(answer) < 2 + answer[1]:
            if not (part := peer.recv(65536)):
                raise ConnectionError("closed before it answered")
            answer += part
        return self._name.encode() in answer
