"""A throwaway PgBouncer in front of a throwaway server, for the tests.

Taken from PATH or the usual folders of a distribution; on Debian, as root, installed when it is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal, Protocol, Self

from tools.ports import free_port
from tools.postgres import _cache, _ensure_server_user, _locked, _run, _unprivileged


def provide() -> str:
    """Return the program; install it when it is missing."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    with _locked(_cache() / "lock"):
        _ensure_server_user()
        if shutil.which("pgbouncer", path=path) is None:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise RuntimeError("install PgBouncer, or put it on PATH")
            env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            _run(["apt-get", "update", "-qq"], env=env)
            _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "pgbouncer"], env=env)
        program = shutil.which("pgbouncer", path=path)
    if program is None:
        raise RuntimeError("PgBouncer was installed, but is nowhere on PATH")
    return program


class Upstream(Protocol):
    """A server, or what stands before it."""

    port: int


class PgBouncer:
    """Pools few connections to the server for many clients; gone at the end."""

    def __init__(
        self,
        server: Upstream,
        *,
        mode: Literal["session", "transaction"] = "transaction",
        pool_size: int = 3,
        user: str = "postgres",
        **settings: str | int,
    ) -> None:
        """Take `settings` as pgbouncer.ini has them."""
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        (self._folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} user={user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {pool_size}\nmax_client_conn = 500\n"
            f"logfile = {self._folder / 'log'}\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")

    def url(self, dbname: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        on_death = ["--pdeathsig=KILL"] if threading.current_thread() is threading.main_thread() else []
        command = [provide(), "-q", str(self._folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(_unprivileged(command, *on_death), stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise RuntimeError(f"PgBouncer did not start: {error}") from error
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
