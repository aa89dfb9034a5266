"""A member of a throwaway Patroni cluster: Patroni, and the PostgreSQL 15 that it starts, stops and promotes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import postgres
from tools.broker import provide
from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.etcd import Etcd

VERSION = 15
"""Patroni needs all programs of the server, pg_rewind among them: Debian's package has them."""
SCOPE = "holdfast"
TIMES = {"ttl": 20, "loop_wait": 2, "retry_timeout": 3, "master_start_timeout": 0}
"""In seconds. A leader whose Patroni is gone is replaced after `ttl`; one whose server alone has died, at once."""
STOP_SECONDS = 30.0


class Member:
    """One server of the cluster and its Patroni. After kill() it can be started again, on the same data."""

    def __init__(
        self, name: str, etcd: Etcd, *, synchronous: bool = True, settings: Mapping[str, str | int] | None = None
    ) -> None:
        """Take `settings` as postgresql.conf has them.

        `synchronous`: a commit waits for a standby, and only that one may be promoted.
        """
        self._program = provide("patroni", "patroni python3-etcd python3-psycopg2", "install Debian's patroni")
        self._bin = postgres.provide(VERSION)
        self.name = name
        self.port = free_port()
        self.api_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix=f"holdfast-patroni-{name}-", dir=postgres._memory()))
        config = self._config(etcd, synchronous=synchronous, settings=settings or {})
        # JSON is YAML, too.
        (self._folder / "patroni.yaml").write_text(json.dumps(config, indent=2), "utf-8")
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> str:
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def postmaster(self) -> int:
        """The pid of its server."""
        # A server in single-user mode writes a negative number.
        return abs(int((self.data / "postmaster.pid").read_text().split()[0]))

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def start(self) -> None:
        """Start Patroni, and do not wait for it."""
        # Patroni stops its server when it is terminated. Only the main thread may ask for a signal on its own death.
        on_death = ["--pdeathsig=TERM"] if threading.current_thread() is threading.main_thread() else []
        command: list[str | Path] = [self._program, self._folder / "patroni.yaml"]
        environment = {"PATH": os.defpath, "HOME": str(self._folder), "LANG": "C.UTF-8"}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                postgres._unprivileged(command, *on_death),
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill_server(self) -> None:
        """Kill every process of its server. Patroni lives, and gives the leadership away."""
        postgres.kill_with_children(self.postmaster)

    def kill(self) -> None:
        """Kill Patroni and every process of its server, as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None
        self.kill_server()

    def freeze(self) -> None:
        """Let Patroni and its server hang with their connections open, as a machine without storage does."""
        assert self._process is not None
        for pid in (self._process.pid, self.postmaster, *postgres.children(self.postmaster)):
            _signal(pid, signal.SIGSTOP)

    def reset(self) -> None:
        """Kill both and start again, as a watchdog does with a machine that hangs."""
        self.kill()
        self.start()

    def thaw(self) -> None:
        """Let both go on."""
        assert self._process is not None
        if (self.data / "postmaster.pid").exists():
            for pid in (*postgres.children(self.postmaster), self.postmaster):
                _signal(pid, signal.SIGCONT)
        _signal(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self.running:
            self.thaw()
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if (self.data / "postmaster.pid").exists():
            self.kill_server()
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_primary(self) -> bool:
        return self.ask("GET", "/primary")[0] == 200

    def cluster(self) -> list[dict[str, Any]]:
        """Return the members as this one sees them; none, if it does not answer."""
        found: list[dict[str, Any]] = self.ask("GET", "/cluster")[1].get("members", [])
        return found

    def switch_over(self, leader: str, candidate: str) -> None:
        """Give the leadership to another member, and return when that has been done."""
        wish = {"leader": leader, "candidate": candidate}
        status, answer = self.ask("POST", "/switchover", wish, seconds=60)
        if status != 200:
            raise RuntimeError(f"no switchover from {leader} to {candidate}: {status} {answer}")

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, seconds: float = 2
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of Patroni's REST API; status 0 if it does not answer."""
        asked = HTTPConnection("127.0.0.1", self.api_port, timeout=seconds)
        try:
            asked.request(method, path, None if body is None else json.dumps(body))
            answer = asked.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException):
            return 0, {}
        finally:
            asked.close()
        return answer.status, json.loads(text) if text.startswith("{") else {"text": text}

    def _config(self, etcd: Etcd, *, synchronous: bool, settings: Mapping[str, str | int]) -> dict[str, Any]:
        api, server = f"127.0.0.1:{self.api_port}", f"127.0.0.1:{self.port}"
        login = {"username": "postgres"}
        return {
            "scope": SCOPE,
            "name": self.name,
            "etcd3": {"host": f"127.0.0.1:{etcd.port}"},
            "restapi": {"listen": api, "connect_address": api},
            "bootstrap": {
                "dcs": TIMES
                | {
                    "synchronous_mode": synchronous,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": dict(settings)},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(self.data),
                "bin_dir": str(self._bin),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "parameters": {"unix_socket_directories": ""},
            },
            "watchdog": {"mode": "off"},
        }


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
