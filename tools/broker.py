"""Throwaway servers: programs found or installed, on a free port of 127.0.0.1, stopped by pid."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from tools.ports import free_port
from tools.postgres import _cache, _locked, _run


def provide(program: str, packages: str, otherwise: str) -> Path:
    """Return where the program is; install Debian's packages when it is missing and we may."""
    # A virtualenv that is not activated has its programs beside its python; Debian's servers may be in sbin.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    with _locked(_cache() / "lock"):
        if not shutil.which(program, path=path):
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise RuntimeError(f"{program} is missing: {otherwise}")
            env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            _run(["apt-get", "update", "-qq"], env=env)
            _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages.split()], env=env)
    found = shutil.which(program, path=path)
    assert found is not None, f"{packages} was installed, and {program} is not in {path}"
    return Path(found)


class Broker(ABC):
    """A server of one's own. After stop() or kill() it can be started again, on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-broker-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def command(self) -> list[str | Path]: ...

    @abstractmethod
    def is_ours(self, peer: socket.socket) -> bool:
        """Return whether the process that answers on the port is the one we started."""

    @property
    def pid(self) -> int:
        return self._running.pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start, and return when the server answers."""
        if self._process is not None:
            raise RuntimeError(f"the server runs already, as process {self._process.pid}")
        # The kernel ties the parent's death to the thread that started the child, so only the main thread may ask.
        main = threading.current_thread() is threading.main_thread()
        wrapper = ["setpriv", "--pdeathsig=KILL", "--"] if main else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*wrapper, *self.command()], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait_until_ready(seconds=120)  # a busy machine needs most of a minute for Erlang

    def freeze(self) -> None:
        """Let it hang, its connections open, until it is killed."""
        self._running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._running.pid, os.WSTOPPED | os.WNOWAIT)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        process = self._running
        process.send_signal(signal_number)
        process.wait(30)
        self._process = None

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process

    def _wait_until_ready(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
                    ours = self.is_ours(peer)
                break
            except OSError as error:
                if self._running.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "log").read_text(errors="replace")[-4000:]
                    self.close()
                    raise RuntimeError(f"{type(self).__name__} did not start: {error}\n{log}") from error
                time.sleep(0.02)
        if not ours:
            self.close()
            raise RuntimeError(f"port {self.port} answers, but it is not the server that was started")
