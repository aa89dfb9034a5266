"""deploy/compose.yaml as processes of this machine: the same commands, environment and order, with free ports."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import psycopg
import yaml

from tests.deploy.containerfile import ROOT
from tests.deploy.program import Program, run
from tools.ports import free_port
from tools.postgres import Server
from tools.prometheus import Prometheus

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.deploy.image import Image

FILE = ROOT / "deploy" / "compose.yaml"
_DEFAULT = re.compile(r"\$\{\w+:-(\w*)\}")


def services() -> dict[str, dict[str, Any]]:
    """Return the services, with the defaults of the variables that they name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(_DEFAULT.sub(r"\1", FILE.read_text()))["services"]
    return found


def ours() -> dict[str, dict[str, Any]]:
    """Return the services that run our image."""
    return {name: service for name, service in services().items() if service["image"] == "holdfast"}


class Up:
    """Everything of the file but Grafana. PostgreSQL and Prometheus come from this machine's packages."""

    def __init__(self, image: Image, version: int, folder: Path) -> None:
        self._image, self._version, self._folder = image, version, folder
        self._ends = ExitStack()
        self._ports = {name: free_port() for name in ("9464", "8080")}
        self.order: list[str] = []
        self.programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self._ports['8080']}"

    @property
    def metrics(self) -> str:
        return f"{self.dashboard}/metrics"

    def exec(self, service: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the container of a service."""
        return run(self._image.program(*words), cwd=self._app, env=self._environment(service))

    def healthy(self, service: str) -> bool:
        command = self._image.healthcheck()
        return run(command, cwd=self._app, env=self._environment(service)).returncode == 0

    @property
    def _app(self) -> Path:
        return self._folder / "app"

    def _start(self) -> None:
        for name in self._sorted():
            getattr(self, f"_start_{name}", lambda: None)()
            self.order.append(name)

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
        done = run(self._command("migrate"), cwd=self._folder, env=self._environment("migrate"))
        assert done.returncode == 0, done

    def _start_worker(self) -> None:
        self._mount("worker")
        self._go_on("worker", "worker started")

    def _start_dashboard(self) -> None:
        self._go_on("dashboard", "Serving on")

    def _start_prometheus(self) -> None:
        (rules,) = [source for source, _ in _volumes("prometheus") if source.suffix == ".yml"]
        targets = [f"127.0.0.1:{port}" for port in self._ports.values()]
        self.prometheus = self._ends.enter_context(Prometheus(targets, rules=[rules]))

    def _mount(self, name: str) -> None:
        for source, target in _volumes(name):
            place = self._folder / target.lstrip("/").removesuffix(":ro")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(source.read_bytes())

    def _go_on(self, name: str, heard: str) -> None:
        self._app.mkdir(exist_ok=True)
        program = Program(self._command(name), cwd=self._app, env=self._environment(name))
        self.programs[name] = self._ends.enter_context(program)
        program.hear(heard)

    def _command(self, name: str) -> list[str]:
        return self._image.command(*[self._here(word) for word in services()[name]["command"]])

    def _environment(self, name: str) -> dict[str, str]:
        given = {key: self._here(value) for key, value in services()[name]["environment"].items()}
        given.setdefault("HEALTH_URL", self._here(self._image.environment()["HEALTH_URL"]))
        return self._image.environment(**given, PYTHONPATH=str(self._app))

    def _here(self, text: str) -> str:
        """Return a text with the addresses of this machine."""
        text = text.replace("postgres:5432", f"127.0.0.1:{self._server.port}").replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text


def _volumes(name: str) -> list[tuple[Path, str]]:
    """Return the files of the repository that a service mounts, and where."""
    found = [volume.split(":", 1) for volume in services()[name].get("volumes", ())]
    return [((FILE.parent / source).resolve(), target) for source, target in found if source.startswith(".")]
