"""A throwaway RabbitMQ, with an epmd of its own."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tools.broker import Broker, provide
from tools.ports import free_port

if TYPE_CHECKING:
    import socket

# Debian's rabbitmq-server on PATH changes the user and keeps a parent between us and the server; this one does not.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# The largest message it takes, smaller than usual so that a test can pass it.
LARGEST = 1_000_000


class RabbitMqServer(Broker):
    def __init__(self) -> None:
        provide("rabbitmq-server", "rabbitmq-server", "install Debian's rabbitmq-server")
        self._epmd_program = provide("epmd", "erlang-base", "install Erlang")
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port = free_port()
        self._distribution_port = free_port()
        self._node = f"holdfast-{secrets.token_hex(8)}@localhost"
        super().__init__()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        self._start_epmd()
        super().start()

    def close(self) -> None:
        super().close()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(10)
            self._epmd = None

    def command(self) -> list[str | Path]:
        (self.folder / "rabbitmq.conf").write_text(f"max_message_size = {LARGEST}\nheartbeat = 10\n")
        (self.folder / "environment").touch()
        (self.folder / "plugins").write_text("[].\n")
        settings = {
            "HOME": self.folder,  # where the cookie is
            "ERL_EPMD_PORT": self._epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": 1,  # the script then becomes the server, and its pid the server's
            "RABBITMQ_CONF_ENV_FILE": self.folder / "environment",
            "RABBITMQ_CONFIG_FILE": self.folder / "rabbitmq.conf",
            "RABBITMQ_DIST_PORT": self._distribution_port,
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.folder / "plugins",
            "RABBITMQ_LOG_BASE": self.folder,
            "RABBITMQ_MNESIA_BASE": self.folder / "data",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), PROGRAM]

    def is_ours(self, peer: socket.socket) -> bool:
        peer.sendall(b"AMQP\x00\x00\x09\x01")
        greeting = b""
        while not greeting.endswith(b"\xce"):
            if not (part := peer.recv(65536)):
                raise ConnectionError("closed before it answered")
            greeting += part
        # The name of a cluster of one: the node, at whatever the host calls itself.
        return self._node.partition("@")[0].encode() in greeting

    def _start_epmd(self) -> None:
        # Erlang would start one as a daemon, which outlives everything.
        if self._epmd is None:
            where = ["-port", str(self._epmd_port), "-address", "127.0.0.1"]
            self._epmd = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", self._epmd_program, *where],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
