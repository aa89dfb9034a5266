"""deploy/compose.yaml as processes of this machine: the same commands, settings and order, without a container engine.

    python -m tools.compose    start everything, run a job, and go on until Ctrl-C: `make up`
    python -m tools.compose --free-ports    the same, beside others: not on the ports of the file

PostgreSQL and Prometheus come from this machine's packages. Grafana is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import psycopg
import yaml

from tools.ports import free_port
from tools.postgres import Server
from tools.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "compose.yaml"
_DEFAULT = re.compile(r"\$\{\w+:-(\w*)\}")
# The ports that the file publishes, and the worker's for Prometheus.
PORTS = ("8080", "9090", "9464")


def services() -> dict[str, dict[str, Any]]:
    """Return the services, with the defaults of the variables that they name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(_DEFAULT.sub(r"\1", FILE.read_text()))["services"]
    return found


def volumes(name: str) -> list[tuple[Path, str]]:
    """Return the files of the repository that a service mounts, and where."""
    found = [volume.split(":", 1) for volume in services()[name].get("volumes", ())]
    return [((FILE.parent / source).resolve(), target) for source, target in found if source.startswith(".")]


def commands() -> list[str]:
    """Return the commands that the head of the file shows."""
    return re.findall(r"^#     docker compose --file deploy/compose.yaml (.+)$", FILE.read_text(), re.MULTILINE)


class Container(Protocol):
    """Takes the place of the image: its programs and their environment."""

    def command(self, *words: str) -> list[str]:
        """Return the process of a container that is started with these words."""

    def program(self, *words: str) -> list[str]:
        """Return another program of the container."""

    def environment(self, **given: str) -> dict[str, str]:
        """Return the environment of a container: what the image sets, and what is given."""


class Checkout(NamedTuple):
    """The virtualenv of this checkout in place of the image."""

    bin: Path

    def command(self, *words: str) -> list[str]:
        return self.program("holdfast", *words)

    def program(self, *words: str) -> list[str]:
        return [str(self.bin / words[0]), *words[1:]]

    def environment(self, **given: str) -> dict[str, str]:
        path = os.pathsep.join([str(self.bin), os.defpath])
        return {"PATH": path, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **given}


class Service:
    """A program that goes on, with its output in a file."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            # In a group of its own: Ctrl-C stops the services in their order, and not all at once.
            self.process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Return when it has printed this."""
        deadline = time.monotonic() + seconds
        while text not in (printed := self._log.read_text(errors="replace")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{text!r} was not printed:\n{printed}")
            time.sleep(0.02)

    def stop(self) -> tuple[int, float]:
        """Stop it as an engine does, and return its exit status and the seconds that this took."""
        began = time.monotonic()
        self.process.terminate()
        return self.process.wait(120), time.monotonic() - began


class Up:
    """Everything of the file but Grafana, and Prometheus only where it can be had."""

    def __init__(
        self, container: Container, folder: Path, ports: dict[str, int], *, version: int, prometheus: bool = True
    ) -> None:
        """`ports`: the port of this machine for each port of the file."""
        self._container, self._folder, self._version = container, folder, version
        self._with_prometheus = prometheus
        self._ends = ExitStack()
        self.ports = ports
        self.order: list[str] = []
        self.services: dict[str, Service] = {}

    def __enter__(self) -> Self:
        try:
            for name in self._sorted():
                getattr(self, f"_start_{name}", lambda: None)()
                self.order.append(name)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self.ports['8080']}"

    def exec(self, service: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the container of a service."""
        return self._run(self._container.program(*words), service)

    def environment(self, name: str) -> dict[str, str]:
        given = {key: self.here(value) for key, value in services()[name]["environment"].items()}
        return self._container.environment(**given, PYTHONPATH=str(self.app))

    @property
    def app(self) -> Path:
        return self._folder / "app"

    def here(self, text: str) -> str:
        """Return a text with the addresses of this machine."""
        text = text.replace("postgres:5432", f"127.0.0.1:{self._server.port}").replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text

    def _sorted(self) -> list[str]:
        """Return the services in the order of what they depend on."""
        found: list[str] = []
        waiting = {name: set(service.get("depends_on", {})) for name, service in services().items()}
        while waiting:
            ready = [name for name, needs in waiting.items() if needs <= set(found)]
            assert ready, f"services that wait for each other: {waiting}"
            found += ready
            waiting = {name: needs for name, needs in waiting.items() if name not in ready}
        return found

    def _start_postgres(self) -> None:
        self._server = self._ends.enter_context(Server(self._version))
        given = services()["postgres"]["environment"]
        with psycopg.connect(self._server.url(), autocommit=True) as conn:
            conn.execute(
                f"CREATE ROLE {given['POSTGRES_USER']} SUPERUSER LOGIN PASSWORD '{given['POSTGRES_PASSWORD']}'"
            )
            conn.execute(f"CREATE DATABASE {given['POSTGRES_DB']} OWNER {given['POSTGRES_USER']}")

    def _start_migrate(self) -> None:
        self.app.mkdir(exist_ok=True)
        done = self._run(self._command("migrate"), "migrate")
        assert done.returncode == 0, done

    def _start_worker(self) -> None:
        for source, target in volumes("worker"):
            place = self._folder / target.lstrip("/").removesuffix(":ro")
            place.write_bytes(source.read_bytes())
        self._start("worker", "worker started")

    def _start_dashboard(self) -> None:
        self._start("dashboard", "Serving on")

    def _start_prometheus(self) -> None:
        if not self._with_prometheus:
            return
        (rules,) = [source for source, _ in volumes("prometheus") if source.suffix == ".yml"]
        targets = [f"127.0.0.1:{self.ports[port]}" for port in ("9464", "8080")]
        self.prometheus = Prometheus(targets, rules=[rules])
        self.prometheus.port = self.ports["9090"]
        self._ends.enter_context(self.prometheus)

    def _start(self, name: str, printed: str) -> None:
        log = self._folder / f"{name}.log"
        service = Service(self._command(name), cwd=self.app, env=self.environment(name), log=log)
        self.services[name] = self._ends.enter_context(service)
        service.wait_for(printed)

    def _command(self, name: str) -> list[str]:
        return self._container.command(*[self.here(word) for word in services()[name]["command"]])

    def _run(self, command: Sequence[str], service: str) -> subprocess.CompletedProcess[str]:
        env = self.environment(service)
        return subprocess.run(command, cwd=self.app, env=env, capture_output=True, text=True, timeout=120, check=False)


def free_ports() -> dict[str, int]:
    return {port: free_port() for port in PORTS}


def _if_free(port: int) -> int:
    """Return this port if it is free, otherwise another one."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return free_port()
        return port


def main() -> None:
    began = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    version = int(services()["postgres"]["image"].partition("@")[0].rpartition(":")[2])
    prometheus = shutil.which("prometheus") is not None
    ports = free_ports() if "--free-ports" in sys.argv else {port: _if_free(int(port)) for port in PORTS}
    checkout = Checkout(Path(sys.executable).parent)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-up-") as folder,
        Up(checkout, Path(folder), ports, version=version, prometheus=prometheus) as up,
    ):
        _, *asked = commands()
        for command in asked:
            _, service, *words = command.split()
            done = up.exec(service, *words)
            print(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}", flush=True)
            done.check_returncode()
        print(f"Dashboard   {up.dashboard}")
        if prometheus:
            print(f"Prometheus  {up.prometheus.url}")
        else:
            print("Prometheus  left out: it is not installed")
        print("Grafana     left out: import deploy/monitoring/grafana/holdfast.json into yours")
        took = time.monotonic() - began
        print(f"Everything runs after {took:.1f} s. Ctrl-C ends it, and deletes the database.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
